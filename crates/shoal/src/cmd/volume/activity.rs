//! `shoal volume profile` and `shoal volume top`.

use super::grammar::{self, Profiling, or_usage};
use super::run::{Outcome, volumes};
use crate::admin::render;
use crate::admin::{AdminAnswer, AdminRequest, ProfileReport, ProfileStep};
use crate::cmd::local::{Local, Output, expect_answer};
use std::process::ExitCode;

pub(super) fn profile(local: &Local, name: String, words: &[String], output: Output) -> Outcome {
    match or_usage(grammar::profiling(words)) {
        Profiling::Start => {
            ask(local, &name, ProfileStep::Mark)?;
            println!("Starting volume profile on {name} has been successful");
        }
        Profiling::Stop => {
            // Fails if there is no such volume.
            volumes(local, Some(name.clone()))?;
            println!("Stopping volume profile on {name} has been successful");
            eprintln!("note: bricks and mounts go on counting, as they always do");
        }
        Profiling::Info { peek, shown } => {
            let step = if peek { ProfileStep::Peek } else { ProfileStep::Mark };
            let report = ask(local, &name, step)?;
            output.print(&report, |report| render::profile(report, shown))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(local: &Local, name: &str, step: ProfileStep) -> anyhow::Result<ProfileReport> {
    let request = AdminRequest::Profile { name: name.to_owned(), step };
    Ok(expect_answer!(local.request(request)?, AdminAnswer::Profile(report) => report))
}

pub(super) fn top(local: &Local, name: String, words: &[String], output: Output) -> Outcome {
    let of = or_usage(grammar::topmost(words));
    let clears = of.is_none();
    let request = match of {
        Some(of) => AdminRequest::Top { name, of },
        None => AdminRequest::ClearTop { name },
    };
    let report = expect_answer!(local.request(request)?, AdminAnswer::Top(report) => report);
    output.print(&report, |report| match clears {
        true => format!("volume top: {}: success\n{}", report.name, render::top(report)),
        false => render::top(report),
    })?;
    Ok(ExitCode::SUCCESS)
}
