//! Credentials: the cluster's certificate authority, and what it certifies.
//!
//! **Model.** A cluster has one authority, made when it is founded. It certifies nodes and clients; a
//! certificate's names (subject alternative names) say which of the two its owner is. Nodes and clients trust
//! only this authority. A joining node knows the authority's fingerprint from its token before it has a
//! certificate.
//!
//! **Assumes** that clocks may be wrong by years: certificates practically never expire, and access is
//! revoked by name.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use shoal_runtime::durable;
use shoal_types::NodeId;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// In every node's certificate besides the node's number; clients check it.
pub(crate) const NODE_NAME: &str = "node.shoal";
const CLIENT_DOMAIN: &str = ".client.shoal";
const NODE_DOMAIN: &str = ".node.shoal";
const CLUSTER_DOMAIN: &str = ".cluster.shoal";
const VALID_FROM_YEAR: i32 = 2020;
const VALID_TO_YEAR: i32 = 2120;

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// Something is no certificate or key, or they do not belong together.
    #[error("{what}: {why}")]
    Invalid {
        /// The part.
        what: String,
        /// What is wrong.
        why: String,
    },
}

fn invalid(what: &str) -> impl Fn(String) -> CredentialsError + '_ {
    move |why| CredentialsError::Invalid { what: what.to_owned(), why }
}

/// The role in a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// A node of the cluster.
    Node(NodeId),
    /// A client, by the name it was issued to.
    Client(String),
}

impl Role {
    /// Reads the names in a certificate that has been verified.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Role> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        certificate.valid_dns_names().find_map(|name| {
            if let Some(number) = name.strip_suffix(NODE_DOMAIN) {
                return Some(Role::Node(NodeId(number.strip_prefix("n")?.parse().ok()?)));
            }
            let name = name.strip_suffix(CLIENT_DOMAIN)?;
            Some(Role::Client(name.strip_prefix("c-")?.to_owned()))
        })
    }

    fn names(&self) -> Vec<String> {
        match self {
            Role::Node(id) => vec![format!("n{}{NODE_DOMAIN}", id.0), NODE_NAME.to_owned()],
            Role::Client(name) => vec![format!("c-{name}{CLIENT_DOMAIN}")],
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Role::Node(id) => id.fmt(f),
            Role::Client(name) => write!(f, "client {name}"),
        }
    }
}

/// Certificate and private key of the cluster's authority.
pub struct Authority {
    certificate: String,
    key: KeyPair,
    cluster: u128,
}

impl Authority {
    /// Creates one for a new cluster.
    pub fn create(cluster: u128) -> Result<Authority, CredentialsError> {
        let failed = |error: rcgen::Error| invalid("a new authority")(error.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = authority_params(cluster).self_signed(&key).map_err(failed)?;
        Ok(Authority { certificate: certificate.pem(), key, cluster })
    }

    /// Certificate and key, to be kept where only nodes can read them.
    pub fn to_pem(&self) -> String {
        format!("{}{}", self.certificate, self.key.serialize_pem())
    }

    /// Its private key.
    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Parses what [`to_pem`](Self::to_pem) returns.
    pub fn from_pem(cluster: u128, pem: &str) -> Result<Authority, CredentialsError> {
        let malformed = |why: String| invalid("the cluster's authority")(why);
        let at =
            pem.find("-----BEGIN PRIVATE KEY").ok_or_else(|| malformed("there is no private key".into()))?;
        let (certificate, key) = pem.split_at(at);
        parse_certificate(certificate.as_bytes()).map_err(malformed)?;
        let key = KeyPair::from_pem(key).map_err(|error| malformed(error.to_string()))?;
        Ok(Authority { certificate: certificate.to_owned(), key, cluster })
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, role: &Role) -> Result<Credentials, CredentialsError> {
        self.issue_for(role, Vec::new())
    }

    /// Issues a certificate with a new key that names machines, too.
    pub(crate) fn issue_for(
        &self,
        role: &Role,
        machines: Vec<String>,
    ) -> Result<Credentials, CredentialsError> {
        let failed = |error: rcgen::Error| invalid(&role.to_string())(error.to_string());
        let mut names = role.names();
        names.extend(machines);
        names.push(format!("c{:032x}{CLUSTER_DOMAIN}", self.cluster));
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, role.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if matches!(role, Role::Node(_)) {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        validity(&mut params);
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = Issuer::new(authority_params(self.cluster), &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Credentials::from_pem(&self.certificate, &certificate.pem(), &key.serialize_pem())
    }

    /// The authority's [`fingerprint`].
    pub fn fingerprint(&self) -> Result<String, CredentialsError> {
        let der =
            parse_certificate(self.certificate.as_bytes()).map_err(invalid("the cluster's authority"))?;
        Ok(fingerprint(&der))
    }
}

fn authority_params(cluster: u128) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, format!("shoal cluster {cluster:032x}"));
    validity(&mut params);
    params
}

fn validity(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(VALID_FROM_YEAR, 1, 1);
    params.not_after = rcgen::date_time_ymd(VALID_TO_YEAR, 1, 1);
}

/// SHA-256 of a certificate, in hexadecimal digits.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The certificate and key of a process, and the authority that it trusts.
#[derive(Debug)]
pub struct Credentials {
    pem: [String; 3],
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
    role: Role,
}

impl Clone for Credentials {
    fn clone(&self) -> Credentials {
        Credentials {
            pem: self.pem.clone(),
            authority: self.authority.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
            role: self.role.clone(),
        }
    }
}

const FILES: [&str; 3] = ["ca.pem", "cert.pem", "key.pem"];

impl Credentials {
    /// From the authority's certificate, the own certificate, and its key.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> Result<Credentials, CredentialsError> {
        let ca = parse_certificate(authority.as_bytes()).map_err(invalid(FILES[0]))?;
        let own = parse_certificate(certificate.as_bytes()).map_err(invalid(FILES[1]))?;
        let private = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| invalid(FILES[2])(format!("no private key: {error}")))?;
        let role =
            Role::of(&own).ok_or_else(|| invalid(FILES[1])("it names neither a node nor a client".into()))?;
        let pem = [authority, certificate, key].map(str::to_owned);
        Ok(Credentials { pem, authority: ca, certificate: own, key: private, role })
    }

    /// Authority, certificate and key in PEM.
    pub fn to_pem(&self) -> [String; 3] {
        self.pem.clone()
    }

    /// The cluster that the certificate is for.
    pub fn cluster(&self) -> Option<u128> {
        let certificate = webpki::EndEntityCert::try_from(&self.certificate).ok()?;
        certificate.valid_dns_names().find_map(|name| {
            let digits = name.strip_suffix(CLUSTER_DOMAIN)?.strip_prefix('c')?;
            u128::from_str_radix(digits, 16).ok()
        })
    }

    /// The role in the certificate.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Writes `ca.pem`, `cert.pem` and `key.pem` into a directory, which is created if need be; readable for
    /// the owner only.
    pub fn save(&self, dir: &Path) -> Result<(), CredentialsError> {
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |cause| CredentialsError::Io { path, cause }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io(dir))?;
        for (name, text) in FILES.iter().zip(&self.pem) {
            durable::replace(dir, name, text.as_bytes(), 0o600).map_err(io(&dir.join(name)))?;
        }
        Ok(())
    }

    /// Reads what [`save`](Self::save) has written.
    pub fn load(dir: &Path) -> Result<Credentials, CredentialsError> {
        let mut texts = Vec::new();
        for name in FILES {
            let path = dir.join(name);
            let text = std::fs::read_to_string(&path);
            texts.push(
                text.map_err(|cause| CredentialsError::Io { path: path.display().to_string(), cause })?,
            );
        }
        match &texts[..] {
            [ca, certificate, key] => Credentials::from_pem(ca, certificate, key),
            _ => Err(invalid("credentials")("files are missing".into())),
        }
    }
}

fn parse_certificate(pem: &[u8]) -> Result<CertificateDer<'static>, String> {
    CertificateDer::from_pem_slice(pem).map_err(|error| format!("no certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_authority_comes_back_from_its_pem_and_issues_roles() {
        let authority = Authority::create(7).unwrap();
        let again = Authority::from_pem(7, &authority.to_pem()).unwrap();
        assert_eq!(authority.fingerprint().unwrap(), again.fingerprint().unwrap());
        assert_eq!(authority.fingerprint().unwrap().len(), 64);
        for role in [Role::Node(NodeId(3)), Role::Client("web-1.example".into())] {
            let dir = tempfile::tempdir().unwrap();
            let issued = again.issue(&role).unwrap();
            issued.save(&dir.path().join("tls")).unwrap();
            let loaded = Credentials::load(&dir.path().join("tls")).unwrap();
            assert_eq!((loaded.role(), loaded.cluster()), (&role, Some(7)));
            assert_eq!(fingerprint(&loaded.authority), authority.fingerprint().unwrap());
        }
        assert!(Authority::from_pem(7, "rubbish").is_err());
        assert!(
            Credentials::load(Path::new("/nonexistent"))
                .is_err_and(|error| error.to_string().contains("ca.pem"))
        );
    }

    #[test]
    fn saved_credentials_are_replaced_and_never_truncated_in_place() {
        let (authority, dir) = (Authority::create(7).unwrap(), tempfile::tempdir().unwrap());
        let (tls, before) = (dir.path().join("tls"), dir.path().join("before"));
        let issue = || authority.issue(&Role::Node(NodeId(3))).unwrap();
        let first = issue();
        first.save(&tls).unwrap();
        std::fs::hard_link(tls.join("key.pem"), &before).unwrap();
        std::fs::set_permissions(tls.join("key.pem"), PermissionsExt::from_mode(0o644)).unwrap();
        issue().save(&tls).unwrap();
        let [_, _, key] = first.to_pem();
        assert_eq!(
            std::fs::read_to_string(&before).unwrap(),
            key,
            "a crash leaves the old file or the new one"
        );
        let mode = std::fs::metadata(tls.join("key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "the new key is readable for the owner only");
    }
}
