//! The terminal: keys in, screens out, until one quits.
//!
//! **Promises.** The terminal is restored on every way out: a key, SIGTERM, SIGINT, SIGHUP, an error, a panic
//! in any thread.

use super::feed::Feed;
use super::screen;
use super::state::{Action, Key, Sort, State};
use crate::clock::since_1970;
use crate::limits::TOP_KEY_WAIT;
use crate::signals::{DUMP, Signals};
use anyhow::{Context, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::TryRecvError;

/// Shows the state until it is told to stop. `signals` were taken before any thread was started.
pub fn show(mut state: State, feed: &Feed, signals: Signals) -> anyhow::Result<ExitCode> {
    let stopped = Arc::new(AtomicI32::new(0));
    let tell = stopped.clone();
    std::thread::Builder::new().name("top-signals".into()).spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal != DUMP {
                tell.store(signal as i32, Ordering::Release);
                return;
            }
        }
    })?;
    let restored = Restored;
    let mut terminal = ratatui::try_init().context("the terminal")?;
    loop {
        let now = since_1970().as_secs();
        terminal.draw(|frame| screen::draw(frame, &state, now)).context("the terminal")?;
        let mut action = Action::Nothing;
        if event::poll(TOP_KEY_WAIT).context("the terminal")?
            && let Event::Key(pressed) = event::read().context("the terminal")?
            && let Some(key) = key(pressed)
        {
            action = state.press(key);
        }
        let signal = stopped.load(Ordering::Acquire);
        if signal != 0 {
            drop(restored);
            // As a shell shows a process that the signal has ended.
            return Ok(ExitCode::from(128 + signal as u8));
        }
        loop {
            if act(&action, feed) {
                return Ok(ExitCode::SUCCESS);
            }
            match feed.news.try_recv() {
                Ok(news) => action = state.learn(news),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => bail!("the threads that ask have ended"),
            }
        }
    }
}

/// Whether to quit.
fn act(action: &Action, feed: &Feed) -> bool {
    if let Action::Watch(volume) = action {
        feed.watch(volume.clone());
    }
    *action == Action::Quit
}

/// Restores the terminal when it is dropped.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What a key means.
fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c' | 'd') if control => Key::Quit,
        _ if control => return None,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char('?' | 'h') => Key::Help,
        KeyCode::Char('p' | ' ') => Key::Pause,
        KeyCode::Char('d') => Key::Directories,
        KeyCode::Char('o') => Key::Sort(Sort::Operations),
        KeyCode::Char('r') => Key::Sort(Sort::Read),
        KeyCode::Char('w') => Key::Sort(Sort::Written),
        KeyCode::Char('l') => Key::Sort(Sort::Latency),
        KeyCode::Char(digit @ '1'..='9') => Key::Volume(digit as usize - '0' as usize),
        KeyCode::Tab => Key::NextVolume,
        _ => return None,
    })
}
