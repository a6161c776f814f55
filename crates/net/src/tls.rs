//! TLS of both ends: version 1.3, both sides certified by the cluster's authority.

use crate::credentials::{Credentials, CredentialsError, fingerprint};
use std::sync::Arc;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn failed(error: impl ToString) -> CredentialsError {
    CredentialsError::Invalid { what: "credentials".into(), why: error.to_string() }
}

fn roots(credentials: &Credentials) -> Result<Arc<RootCertStore>, CredentialsError> {
    let mut roots = RootCertStore::empty();
    roots.add(credentials.authority.clone()).map_err(failed)?;
    Ok(Arc::new(roots))
}

/// A node's certificate comes with the authority's, which a joining node compares with its token.
fn chain(credentials: &Credentials) -> Vec<CertificateDer<'static>> {
    vec![credentials.certificate.clone(), credentials.authority.clone()]
}

/// For the listening end. Peers without a certificate are accepted, to join; a certificate must be valid.
pub(crate) fn server(credentials: &Credentials) -> Result<Arc<ServerConfig>, CredentialsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(credentials)?, provider())
        .allow_unauthenticated()
        .build()
        .map_err(failed)?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain(credentials), credentials.key.clone_key())
        .map_err(failed)?;
    Ok(Arc::new(config))
}

/// For the connecting end.
pub(crate) fn client(credentials: &Credentials) -> Result<Arc<ClientConfig>, CredentialsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .with_root_certificates(roots(credentials)?)
        .with_client_auth_cert(vec![credentials.certificate.clone()], credentials.key.clone_key())
        .map_err(failed)?;
    Ok(Arc::new(config))
}

/// For a joining node: it has no certificate, and knows the authority by its fingerprint.
pub(crate) fn unauthenticated(authority: &str) -> Result<Arc<ClientConfig>, CredentialsError> {
    let verifier = Pinned { fingerprint: authority.to_owned(), provider: provider() };
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Trusts the authority with this fingerprint; the server has to present it.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pinned = intermediates.iter().find(|one| fingerprint(one) == self.fingerprint);
        let authority = pinned.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
