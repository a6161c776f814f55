//! Carrying out `shoal volume`.

use super::grammar::{self, or_usage};
use super::tiering::{Attachment, Scheme, Tiering, tiering};
use super::{Command, StatusOf, Volume};
use super::{activity, gluster};
use crate::admin::{
    AdminAnswer, AdminRequest, ClearedReport, HealReport, RebalanceStep, RemoveStep, ScrubStep, TierStep,
    VolumeReport, VolumeState, VolumeStatus, render,
};
use crate::cmd::local::{Confirmation, Local, Mode, Output, expect_answer};
use crate::cmd::request::unexpected_answer;
use crate::limits::DIGEST_ATTEMPTS;
use anyhow::{Context, bail};
use std::process::ExitCode;

pub(super) type Outcome = anyhow::Result<ExitCode>;

impl Volume {
    pub fn run(self, mode: Mode) -> Outcome {
        let local = &self.local;
        match self.command {
            Command::Create { name, words } => create(local, name, &words.words),
            Command::Start { name, force: Some(_) } if is_started(local, &name)? => {
                eprintln!(
                    "note: volume {name} is started already; a server serves its bricks again by itself"
                );
                println!("volume start: {name}: success");
                Ok(ExitCode::SUCCESS)
            }
            Command::Start { name, .. } => {
                done(local, "start", name, |name| AdminRequest::StartVolume { name })
            }
            Command::Stop { name, confirmation, .. } => {
                confirmation.require(mode, &format!("What has volume {name} mounted will stop working."))?;
                done(local, "stop", name, |name| AdminRequest::StopVolume { name })
            }
            Command::Delete { name, confirmation } => {
                confirmation.require(
                    mode,
                    &format!("Deleting volume {name} deletes everything in it, also on its bricks."),
                )?;
                let done = done(local, "delete", name, |name| AdminRequest::DeleteVolume { name })?;
                println!(
                    "Its bricks are emptied in the background; `shoal cluster status` shows those that are not yet."
                );
                Ok(done)
            }
            Command::Info { name, output } => {
                output.print(&volumes(local, name)?, |volumes| render::volumes(volumes))?;
                Ok(ExitCode::SUCCESS)
            }
            Command::List { output } => list(&volumes(local, None)?, output),
            Command::Rename { name, to } => {
                local.act(AdminRequest::RenameVolume { name: name.clone(), to: to.clone() })?;
                println!(
                    "volume rename: {name}: success: it is called {to} from now on. What has it mounted goes on; /etc/fstab and \
                     new mounts have to say {to}"
                );
                Ok(ExitCode::SUCCESS)
            }
            Command::Status { name, what, digest, output } => {
                status(local, name.filter(|name| name != "all"), what, digest, output)
            }
            Command::Set { words, output } => set(local, &words.words, output),
            Command::Reset { name, key, .. } => reset(local, name, key.filter(|key| key != "all")),
            Command::Get { name, key, output } => get(local, name, &key, output),
            Command::AddBrick { name, words } => {
                let (bricks, force) = or_usage(grammar::bricks(&words.words));
                done(local, "add-brick", name, |name| AdminRequest::AddBricks { name, bricks, force })
            }
            Command::RemoveBrick { name, words, confirmation, output } => {
                remove(local, mode, name, &words.words, confirmation, output)
            }
            Command::ReplaceBrick { name, words } => replace(local, name, &words.words),
            Command::Heal { name, what, more, output } => {
                heal(local, name, what.as_deref(), more.as_deref(), output)
            }
            Command::Tier { name, words, confirmation, output } => {
                tier(local, mode, name, &words.words, confirmation, output)
            }
            Command::Convert { name, words, output } => convert(local, name, &words.words, output),
            Command::Rebalance { name, what, force: _, output } => rebalance(local, name, &what, output),
            Command::Scrub { name, what, output } => {
                scrub(local, name, or_usage(grammar::scrub(&what)), output)
            }
            Command::Bitrot { name, words, output } => match or_usage(grammar::bitrot(&words.words)) {
                Some(step) => scrub(local, name, step, output),
                None => {
                    println!("volume bitrot: {name}: success: every block has its checksums, always");
                    Ok(ExitCode::SUCCESS)
                }
            },
            Command::ClearLocks { name, path, words, output } => {
                clear_locks(local, name, path, &words.words, output)
            }
            Command::Profile { name, words, output } => activity::profile(local, name, &words.words, output),
            Command::Top { name, words, output } => activity::top(local, name, &words.words, output),
            Command::Digest { name, output } => digest(local, &name, output),
        }
    }
}

/// Asks for something to be done and says that it was.
fn done(local: &Local, verb: &str, name: String, request: impl FnOnce(String) -> AdminRequest) -> Outcome {
    local.act(request(name.clone()))?;
    println!("volume {verb}: {name}: success");
    Ok(ExitCode::SUCCESS)
}

fn is_started(local: &Local, name: &str) -> anyhow::Result<bool> {
    Ok(volume(local, name)?.state == VolumeState::Started)
}

fn volume(local: &Local, name: &str) -> anyhow::Result<VolumeReport> {
    volumes(local, Some(name.to_owned()))?.into_iter().next().context("the server named no volume")
}

/// Creates a volume by the words that `volume create` takes after its name.
pub(in crate::cmd) fn create(local: &Local, name: String, words: &[String]) -> Outcome {
    let grammar::Creation { replica, bricks, arbiters, shards, force } = or_usage(grammar::creation(words));
    local.act(AdminRequest::CreateVolume { name: name.clone(), replica, bricks, arbiters, shards, force })?;
    println!(
        "volume create: {name}: success: please start the volume to access data ({})",
        local.command(&format!("volume start {name}"))
    );
    Ok(ExitCode::SUCCESS)
}

pub(in crate::cmd) fn volumes(local: &Local, name: Option<String>) -> anyhow::Result<Vec<VolumeReport>> {
    Ok(
        expect_answer!(local.request(AdminRequest::Volumes { name })?, AdminAnswer::Volumes { volumes } => volumes),
    )
}

fn statuses(local: &Local, request: AdminRequest) -> anyhow::Result<Vec<VolumeStatus>> {
    Ok(expect_answer!(local.request(request)?, AdminAnswer::Statuses { volumes } => volumes))
}

fn status(
    local: &Local,
    name: Option<String>,
    what: Option<StatusOf>,
    digest: bool,
    output: Output,
) -> Outcome {
    match what {
        None => {
            let volumes = statuses(local, AdminRequest::VolumeStatus { name, digest })?;
            output.print(&volumes, |volumes| render::statuses(volumes, digest))?;
        }
        Some(StatusOf::Detail) => {
            let request = AdminRequest::VolumeDetail { name };
            let volumes =
                expect_answer!(local.request(request)?, AdminAnswer::Details { volumes } => volumes);
            output.print(&volumes, |volumes| render::details(volumes))?;
        }
        Some(StatusOf::Clients) => {
            let request = AdminRequest::Sessions { name };
            let volumes =
                expect_answer!(local.request(request)?, AdminAnswer::Sessions { volumes } => volumes);
            output.print(&volumes, |volumes| render::sessions(volumes))?;
        }
        Some(StatusOf::Tasks) => {
            let request = AdminRequest::Tasks { name };
            let volumes = expect_answer!(local.request(request)?, AdminAnswer::Tasks { volumes } => volumes);
            output.print(&volumes, |volumes| render::tasks(volumes))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn set(local: &Local, words: &[String], output: Output) -> Outcome {
    match or_usage(grammar::setting(words)) {
        grammar::Setting::Help => {
            output.print(&render::known_options(), |known| render::option_help(known))?;
            Ok(ExitCode::SUCCESS)
        }
        grammar::Setting::Pairs(name, pairs) => {
            // All or none, as far as that can be known here; the servers check them again.
            let pairs = settings(pairs)?;
            check_scope(&name, &pairs)?;
            change_settings(local, &name, pairs)?;
            println!("volume set: {name}: success");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// GlusterFS's word for all volumes.
const ALL_VOLUMES: &str = "all";

/// GlusterFS has options of the whole cluster, `volume set all KEY VALUE`. None of them is a setting here.
fn check_scope(name: &str, pairs: &[(String, String)]) -> anyhow::Result<()> {
    match pairs.first() {
        Some((key, _)) if name == ALL_VOLUMES => {
            bail!("{key} is a setting of one volume: name it instead of `all`, and set it on each")
        }
        _ => Ok(()),
    }
}

fn reset(local: &Local, name: String, key: Option<String>) -> Outcome {
    let key = match key {
        None => None,
        Some(key) => {
            if let Some(why) = gluster::unknown(&key) {
                bail!("{why}");
            }
            match gluster::ours(&key) {
                Ok(ours) => Some(ours.to_owned()),
                Err(why) => {
                    eprintln!("note: {why}");
                    println!("volume reset: {name}: success");
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    };
    done(local, "reset", name, |name| AdminRequest::ResetOptions { name, key })
}

/// Changes settings, one after the other.
pub(in crate::cmd) fn change_settings(
    local: &Local,
    name: &str,
    pairs: Vec<(String, String)>,
) -> anyhow::Result<()> {
    for (key, value) in pairs {
        local.act(AdminRequest::SetOption { name: name.to_owned(), key, value })?;
    }
    Ok(())
}

/// The settings that are left of what was said, which may be options of GlusterFS.
fn settings(said: Vec<(String, String)>) -> anyhow::Result<Vec<(String, String)>> {
    let mut settings = Vec::new();
    for (key, value) in said {
        if key == "group" {
            let Some(why) = gluster::group(&value) else {
                bail!("there is no group '{value}'; set options one by one: `shoal volume set help`");
            };
            eprintln!("note: group {value} is not needed: {why}");
            continue;
        }
        if let Some(why) = gluster::unknown(&key) {
            bail!("{why}");
        }
        let (key, value) = match gluster::answer(&key, &value) {
            None => (key, value),
            Some(gluster::Answer::Set(ours, ours_value)) => {
                eprintln!("note: {}", gluster::translated((&key, &value), (ours, &ours_value)));
                (ours.to_owned(), ours_value)
            }
            Some(gluster::Answer::NotNeeded(why)) => {
                eprintln!("note: {key} is not needed: {why}");
                continue;
            }
            Some(gluster::Answer::Refused(why)) => bail!("{key}: {why}"),
        };
        if let Err(why) = shoal_cluster::options::check(&key, &value) {
            bail!("{why}");
        }
        settings.push((key, value));
    }
    Ok(settings)
}

fn scrub(local: &Local, name: String, step: ScrubStep, output: Output) -> Outcome {
    let report = expect_answer!(local.request(AdminRequest::Scrub { name, step })?, AdminAnswer::Scrub(report) => report);
    output.print(&report, render::scrubbing)?;
    Ok(ExitCode::SUCCESS)
}

fn clear_locks(local: &Local, name: String, path: String, words: &[String], output: Output) -> Outcome {
    let grammar::Clearing { kind, of_programs, range } = or_usage(grammar::clearing(words));
    let report = if of_programs {
        let request = AdminRequest::ClearLocks { name, path, kind, range };
        expect_answer!(local.request(request)?, AdminAnswer::Cleared(report) => report)
    } else {
        eprintln!("note: inode and entry locks are GlusterFS's own; programs' locks are `posix`");
        ClearedReport { name, path, ..ClearedReport::default() }
    };
    output.print(&report, render::cleared)?;
    Ok(ExitCode::SUCCESS)
}

fn list(volumes: &[VolumeReport], output: Output) -> Outcome {
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    output.print(&names, |names| match names.is_empty() {
        true => "No volumes present in cluster\n".into(),
        false => names.iter().map(|name| format!("{name}\n")).collect(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn get(local: &Local, name: String, key: &str, output: Output) -> Outcome {
    let only = match Some(key).filter(|key| *key != "all") {
        None => None,
        Some(key) => match gluster::unknown(key) {
            Some(why) => bail!(why),
            None => Some(gluster::ours(key).map_err(anyhow::Error::msg)?),
        },
    };
    let volume = volume(local, &name)?;
    let values = render::option_values(&volume, only);
    output.print(&values, |_| render::options(&volume, only))?;
    Ok(ExitCode::SUCCESS)
}

fn remove(
    local: &Local,
    mode: Mode,
    name: String,
    words: &[String],
    confirmation: Confirmation,
    output: Output,
) -> Outcome {
    let (bricks, step) = or_usage(grammar::removal(words));
    match step {
        RemoveStep::Force => {
            confirmation.require(mode, "What is on these bricks will be given up; other copies are used.")?;
        }
        RemoveStep::Commit => {
            // Before the administrator is asked to consent to what cannot be done.
            local.act(AdminRequest::RemoveBricks {
                name: name.clone(),
                bricks: bricks.clone(),
                step: RemoveStep::Check,
            })?;
            confirmation.require(mode, "These bricks will not be part of the volume any more.")?;
        }
        RemoveStep::Start | RemoveStep::Status | RemoveStep::Stop | RemoveStep::Check => {}
    }
    match local.request(AdminRequest::RemoveBricks { name: name.clone(), bricks, step })? {
        AdminAnswer::Removal { bricks } => output.print(&bricks, |bricks| render::removal(bricks))?,
        AdminAnswer::Done => match step {
            RemoveStep::Start => println!(
                "volume remove-brick start: {name}: success: `status` shows how far it is, `commit` ends it when it is completed"
            ),
            step => println!("volume remove-brick {}: {name}: success", format!("{step:?}").to_lowercase()),
        },
        other => return Err(unexpected_answer(&other)),
    }
    Ok(ExitCode::SUCCESS)
}

fn tier(
    local: &Local,
    mode: Mode,
    name: String,
    words: &[String],
    confirmation: Confirmation,
    output: Output,
) -> Outcome {
    let step = match or_usage(tiering(words)) {
        Tiering::Attach(attachment) => return attach(local, name, attachment),
        Tiering::Step(step) => step,
    };
    if step == TierStep::DetachCommit {
        confirmation.require(mode, "The bricks of the hot tier will not be part of the volume any more.")?;
    }
    match local.request(AdminRequest::Tier { name: name.clone(), step })? {
        AdminAnswer::Tiers(report) => output.print(&report, render::tiers)?,
        AdminAnswer::TierPlan(report) => output.print(&report, render::tier_plan)?,
        AdminAnswer::Done if step == TierStep::DetachStart => println!(
            "volume tier detach start: {name}: success: `detach status` shows how far it is, `detach commit` ends it when the \
             tier is empty"
        ),
        AdminAnswer::Done => println!("volume tier {}: {name}: success", words.join(" ")),
        other => return Err(unexpected_answer(&other)),
    }
    Ok(ExitCode::SUCCESS)
}

fn attach(local: &Local, name: String, attachment: Attachment) -> Outcome {
    let copies = volume(local, &name)?.replica;
    let Scheme { replica, shards, note } = attachment.scheme(&name, copies).map_err(anyhow::Error::msg)?;
    let Attachment { bricks, force, .. } = attachment;
    let done = done(local, "tier attach", name, |name| AdminRequest::AttachTier {
        name,
        replica,
        shards,
        bricks,
        force,
    })?;
    note.into_iter().for_each(|note| eprintln!("note: {note}"));
    Ok(done)
}

fn replace(local: &Local, name: String, words: &[String]) -> Outcome {
    // GlusterFS always wants `commit force`. Here both words may be left out.
    let words: Vec<String> = words.iter().filter(|word| *word != "commit").cloned().collect();
    let (bricks, force) = or_usage(grammar::bricks(&words));
    let [old, new] = <[_; 2]>::try_from(bricks).unwrap_or_else(|_| {
        or_usage(Err("name two bricks: the one that goes and the one that comes".to_owned()))
    });
    done(local, "replace-brick", name, |name| AdminRequest::ReplaceBrick { name, old, new, force })
}

fn heal(local: &Local, name: String, what: Option<&str>, more: Option<&str>, output: Output) -> Outcome {
    let request = match what {
        Some("info") => AdminRequest::HealInfo { name },
        _ if more.is_some() => {
            or_usage(Err("`summary` follows `info`, as in `heal web info summary`".to_owned()))
        }
        what => AdminRequest::Heal { name, full: what.is_some() },
    };
    let began = matches!(request, AdminRequest::Heal { .. });
    let report = expect_answer!(local.request(request)?, AdminAnswer::Heal(report) => report);
    output.print(&report, |report| match began {
        true => format!(
            "volume heal: {}: success: `{}` shows how it stands\n",
            report.name,
            local.command(&format!("volume heal {} info", report.name))
        ),
        false if more == Some(SPLIT_BRAIN) => render::split_brain(report),
        false if more.is_some() => render::heal_summary(report),
        false => render::heal(report),
    })?;
    let is_fine = began || more == Some(SPLIT_BRAIN) || is_healed(&report);
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What GlusterFS lists after `heal NAME info`. Shoal has none.
const SPLIT_BRAIN: &str = "split-brain";

fn is_healed(report: &HealReport) -> bool {
    report.degraded == 0 && !report.scanning
}

fn convert(local: &Local, name: String, words: &[String], output: Output) -> Outcome {
    if words == ["status"] {
        let request = AdminRequest::Conversion { name };
        let report = expect_answer!(local.request(request)?, AdminAnswer::Conversion(report) => report);
        output.print(&report, render::conversion)?;
        return Ok(ExitCode::SUCCESS);
    }
    let grammar::Conversion { replica, shards, force } = or_usage(grammar::conversion(words, "status"));
    local.act(AdminRequest::Convert { name: name.clone(), replica, shards, force })?;
    println!(
        "volume convert: {name}: success: what is written from now on is stored so; `{}` shows how far the rest is",
        local.command(&format!("volume convert {name} status"))
    );
    Ok(ExitCode::SUCCESS)
}

fn rebalance(local: &Local, name: String, what: &str, output: Output) -> Outcome {
    let step = match what {
        "start" => RebalanceStep::Start,
        "stop" => RebalanceStep::Stop,
        _ => RebalanceStep::Status,
    };
    match local.request(AdminRequest::Rebalance { name: name.clone(), step })? {
        AdminAnswer::Rebalance(report) => output.print(&report, render::rebalance)?,
        AdminAnswer::Done => println!("volume rebalance {what}: {name}: success"),
        other => return Err(unexpected_answer(&other)),
    }
    Ok(ExitCode::SUCCESS)
}

fn digest(local: &Local, name: &str, output: Output) -> Outcome {
    let mut attempt = 1;
    let volume = loop {
        let volumes = statuses(local, AdminRequest::Digest { name: name.to_owned() })?;
        let volume = volumes.into_iter().next().context("the server named no volume")?;
        let all_there = volume.replicas.iter().all(|replica| replica.digest.is_some());
        let undecided = render::agreement(&volume.replicas) == render::Agreement::Undecided;
        // Replicas apply changes moments after each other; soon they will stand still at the same one.
        if attempt == DIGEST_ATTEMPTS || !undecided || !all_there {
            break volume;
        }
        attempt += 1;
    };
    output.print(&volume, render::digests)?;
    let identical = render::agreement(&volume.replicas) == render::Agreement::Identical;
    Ok(if identical { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_of_the_whole_cluster_is_answered_and_a_setting_is_of_one_volume() {
        let one = |key: &str, value: &str| settings(vec![(key.to_owned(), value.to_owned())]);
        let refused = one("cluster.op-version", "100000").unwrap_err().to_string();
        assert!(refused.contains("volume set NAME op-version 2"), "{refused}");
        let none = one("cluster.brick-multiplex", "on").unwrap();
        assert!(none.is_empty() && check_scope("all", &none).is_ok());
        let set = one("auth.allow", "10.77.0.*").unwrap();
        assert_eq!(set, [("auth.allow".to_owned(), "10.77.0.0/24".to_owned())]);
        assert!(check_scope("web", &set).is_ok());
        assert!(check_scope("all", &set).unwrap_err().to_string().contains("one volume"));
        let misspelt = settings(vec![("features.reed-only".into(), "on".into())]).unwrap_err();
        assert!(misspelt.to_string().contains("did you mean features.read-only?"));
    }
}
