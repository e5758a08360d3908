//! `thunderhead backup …`: commands for a backup's storage while no server uses it.

use crate::text;
use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thunderhead_backup::check::{Content, FrameReport, Report, check};
use thunderhead_backup::{FILE_NAME, buffer_directory};
use thunderhead_runtime::files::Files;
use thunderhead_runtime::os::{Directory, MemoryDirectory};

/// The command.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read all frames and verify them; never writes.
    ///
    /// Status 0: all frames are intact. 1: a frame is damaged. 2: the storage could not be checked,
    /// for example because a server uses it.
    Check {
        /// The directory of the storage.
        directory: PathBuf,
        /// Also list free frames.
        #[arg(long)]
        all: bool,
        /// Print JSON, for programs: every frame, free ones too.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command. Returns false if a frame is damaged.
pub(crate) fn run(arguments: Arguments) -> Result<bool> {
    let Command::Check { directory, all, json } = arguments.command;
    ensure!(directory.is_dir(), "{} is not a directory", directory.display());
    let mut files = Directory::existing(&directory)?;
    ensure!(
        files.find(FILE_NAME)?,
        "{} has no backup storage: the file {FILE_NAME} is missing",
        directory.display()
    );
    // Root may look at the storage of another user's server.
    let mut memories = match buffer_directory(&mut files)? {
        Some(buffers) => MemoryDirectory::at(Path::new(&buffers)),
        None => MemoryDirectory::default(),
    }
    .read_only(files.owner(FILE_NAME)?);
    let report = with_progress(|progress| check(&mut files, &mut memories, FILE_NAME, progress))
        .with_context(|| format!("cannot check {}", directory.display()))?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", text::exact(&serde_json::to_string_pretty(&facts(&report))?))?;
    } else {
        print(&report, all, &mut out)?;
    }
    Ok(report.damaged() == 0)
}

/// Runs work with a progress bar on a terminal, if it takes longer than a moment.
fn with_progress<T>(work: impl FnOnce(&mut dyn FnMut(u32, u32)) -> T) -> T {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} frames, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let result = work(&mut |done, total| {
        if bar.elapsed() > Duration::from_secs(1) {
            bar.set_length(u64::from(total));
            bar.set_position(u64::from(done));
        }
    });
    bar.finish_and_clear();
    result
}

#[derive(Debug, Serialize)]
struct Facts {
    cluster: u64,
    server: u64,
    segment_bytes: u32,
    frames_damaged: usize,
    /// `null` if the memory cannot be read.
    replicas_in_memory: Option<u32>,
    frames: Vec<FrameFacts>,
}

#[derive(Debug, Serialize)]
struct FrameFacts {
    frame: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<ReplicaFacts>,
    torn: bool,
    spare_header_damaged: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

#[derive(Debug, Serialize)]
struct ReplicaFacts {
    master: u64,
    segment: u64,
    epoch: u64,
    length_bytes: u32,
}

fn facts(report: &Report) -> Facts {
    Facts {
        cluster: report.superblock.identity.cluster.0,
        server: report.superblock.identity.server.0,
        segment_bytes: report.superblock.geometry.segment_bytes,
        frames_damaged: report.damaged(),
        replicas_in_memory: report.in_memory.as_ref().ok().copied(),
        frames: report.frames.iter().map(frame_facts).collect(),
    }
}

fn frame_facts(frame: &FrameReport) -> FrameFacts {
    let (state, replica, damage) = match &frame.content {
        Content::Free => ("free", None, None),
        Content::HeaderDamaged => ("unknown", None, Some("the header is damaged".to_owned())),
        Content::Replica { id, epoch, closed, committed, length, damage } => {
            let state = match (committed, closed) {
                (false, _) => "incomplete",
                (true, false) => "open",
                (true, true) => "closed",
            };
            let replica = ReplicaFacts {
                master: id.master.0,
                segment: id.segment.0,
                epoch: epoch.0,
                length_bytes: *length,
            };
            (state, Some(replica), damage.as_ref().map(ToString::to_string))
        }
    };
    FrameFacts {
        frame: frame.frame.0,
        state,
        replica,
        torn: frame.torn,
        spare_header_damaged: frame.spare_damaged,
        damage,
    }
}

fn print(report: &Report, all: bool, out: &mut dyn Write) -> std::io::Result<()> {
    let Facts { cluster, server, segment_bytes, .. } = facts(report);
    let total = report.frames.len();
    writeln!(out, "server {server} of cluster {cluster}: {total} frames of {segment_bytes} bytes")?;
    writeln!(
        out,
        "{:>8}  {:10}  {:>12}  {:>12}  {:>6}  {:>10}  remarks",
        "frame", "state", "master", "segment", "epoch", "bytes"
    )?;
    for frame in &report.frames {
        let is_plain = frame.content == Content::Free && !frame.torn && !frame.spare_damaged;
        if is_plain && !all {
            continue;
        }
        let facts = frame_facts(frame);
        let number = |of: fn(&ReplicaFacts) -> u64| {
            facts.replica.as_ref().map_or(String::from("-"), |replica| of(replica).to_string())
        };
        let mut remarks: Vec<String> =
            facts.damage.iter().map(|it| format!("DAMAGED: {it}")).collect();
        remarks.extend(facts.torn.then(|| "a write was torn; no data is lost".to_owned()));
        let spare = facts.spare_header_damaged && facts.state != "unknown";
        remarks.extend(spare.then(|| "the older header is damaged; no data is lost".to_owned()));
        let line = format!(
            "{:>8}  {:10}  {:>12}  {:>12}  {:>6}  {:>10}  {}",
            facts.frame,
            facts.state,
            number(|it| it.master),
            number(|it| it.segment),
            number(|it| it.epoch),
            number(|it| u64::from(it.length_bytes)),
            remarks.join("; ")
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    let free = report.frames.iter().filter(|frame| frame.content == Content::Free).count();
    writeln!(out, "{free} free, {} used, {} damaged", total - free, report.damaged())?;
    match &report.in_memory {
        Ok(0) => {}
        Ok(count) => writeln!(
            out,
            "a killed server left {count} replicas in memory; the server writes them to the disk at its next start"
        )?,
        Err(why) => {
            writeln!(out, "cannot read the memory in which a killed server leaves replicas: {why}")?
        }
    }
    Ok(())
}
