//! The cluster's format: which programs know which formats, and the switch to a newer format.
//!
//! A server reports its newest format when it registers and when it enlists, and its record keeps
//! it. Every coordinator, even a stand-by, writes its own into the metastore:
//!
//! ```text
//!  coordinators/ID   its newest format    written again every ANNOUNCED_EVERY, while it runs
//! ```
//!
//! A coordinator draws its id at its start. Its address would not do as a key: coordinators on
//! several machines may all listen at `0.0.0.0:7070`. A coordinator deletes its value when it ends
//! in order.
//!
//! The leader reads these values, and deletes each that was not written again for
//! [`COORDINATOR_GONE`]: that coordinator does not run. Only the leader's clock counts. A
//! coordinator that was down during a switch does no harm: it does not lead a cluster whose format
//! it does not know ([`check_format`](crate::stored::check_format)).
//!
//! The switch is refused while any program does not know the format: a server of the cluster, even
//! a server that is down, or a coordinator. The switch holds the update lock, and servers enlist
//! under it, so no server enlists during a switch.
//!
//! [`COORDINATOR_GONE`]: crate::limits::COORDINATOR_GONE

use crate::knowledge::coordinators::CoordinatorRecord;
use crate::leadership::Leadership;
use crate::limits::{ANNOUNCED_EVERY, COORDINATORS_MAX};
use crate::refusal::{Outcome, Refusal};
use crate::shared::Shared;
use crate::stored::{COORDINATORS, to_value};
use std::rc::{Rc, Weak};
use thunderhead_metastore::{Answer, Change, Entry, Error, Key, Page, Prefix, Request, Version};
use thunderhead_wire::control::{ChangeSettings, KnownFormat, Program, SettingsChanged, to_body};
use thunderhead_wire::{Format, Generation, Status};

/// Begins to announce this coordinator's formats in the metastore, for as long as it runs.
pub(crate) fn announce(shared: &Rc<Shared>) {
    let options = &shared.options;
    let id = format!("{:016x}", shared.random.borrow_mut().number());
    let Ok(key) = Key::new(format!("{COORDINATORS}{id}")) else { return };
    let _ = shared.key.set(key.clone());
    let address = if options.address.is_empty() { id } else { options.address.clone() };
    let _ = shared.name.set(address.clone());
    let value = to_value(&CoordinatorRecord { address, newest_format: options.newest_format });
    let (weak, tasks) = (Rc::downgrade(shared), shared.tasks().clone());
    shared.tasks().spawn(async move {
        let mut version = None;
        while let Some(answer) = write(&weak, &key, &value, version).await {
            match answer {
                Ok(Answer::Written(written)) => {
                    version = Some(written);
                    let Some(shared) = weak.upgrade() else { return };
                    shared.announced.set(version);
                }
                Ok(Answer::Conflict(found)) if found != version => {
                    version = found;
                    continue;
                }
                // The leader's remarks name the metastore's trouble.
                _ => {}
            }
            tasks.sleep(ANNOUNCED_EVERY).await;
        }
    });
}

/// Deletes this coordinator's value, for it is about to end. If the metastore does not answer, the
/// leader deletes the value later.
pub(crate) fn withdraw(shared: &Rc<Shared>) {
    let (Some(key), Some(version)) = (shared.key.get().cloned(), shared.announced.take()) else {
        return;
    };
    let request = Request::Write { key, change: Change::Delete(version), fence: None };
    let answer = shared.metastore.ask(shared.now(), request);
    shared.withdraws.set(true);
    let weak = Rc::downgrade(shared);
    shared.tasks().spawn(async move {
        let _ = answer.await;
        if let Some(shared) = weak.upgrade() {
            shared.withdraws.set(false);
        }
    });
}

/// Writes it once. Returns `None` if this coordinator has ended, or is about to.
async fn write(
    shared: &Weak<Shared>,
    key: &Key,
    value: &[u8],
    version: Option<Version>,
) -> Option<Result<Answer, Error>> {
    // The task must not keep the state of which it is a part.
    let answer = {
        let shared = shared.upgrade().filter(|shared| !shared.is_resigned())?;
        let change = match version {
            Some(version) => Change::Replace(version, value.to_vec()),
            None => Change::Create(value.to_vec()),
        };
        shared.metastore.ask(shared.now(), Request::Write { key: key.clone(), change, fence: None })
    };
    Some(answer.await)
}

/// Task: keeps the list of coordinators.
pub(crate) async fn watch(leadership: &Rc<Leadership>) {
    loop {
        // The leadership meets the same obstacle and reports it.
        let _ = look(leadership).await;
        leadership.sleep(ANNOUNCED_EVERY).await;
    }
}

/// Reads the coordinators' values. The refusal says that there are too many to read them all: the
/// leader deletes those of ended coordinators first.
async fn look(leadership: &Rc<Leadership>) -> Result<(), Refusal> {
    let (prefix, mut entries) = (Prefix::under(COORDINATORS.trim_end_matches('/'))?, Vec::new());
    let is_whole = loop {
        let after = entries.last().map(|entry: &Entry| entry.key.clone());
        let request = Request::List { prefix: prefix.clone(), after };
        let answer = leadership.shared.metastore.ask(leadership.now(), request).await?;
        let Answer::Page(Page { entries: page, more }) = answer else { return Ok(()) };
        let is_whole = !more || page.is_empty();
        let is_over = is_whole || entries.len() >= COORDINATORS_MAX;
        entries.extend(page);
        if is_over {
            break is_whole;
        }
    };
    let gone = leadership.coordinators.borrow_mut().learn(entries, leadership.now());
    for (key, version) in gone {
        let (change, fence) = (Change::Delete(version), Some(leadership.fence().clone()));
        leadership
            .shared
            .metastore
            .ask(leadership.now(), Request::Write { key, change, fence })
            .await?;
    }
    if is_whole { Ok(()) } else { Err(Status::Busy.into()) }
}

/// Returns the programs of the cluster, and the newest format that each knows.
pub(crate) fn programs(leadership: &Leadership) -> Vec<KnownFormat> {
    let own = leadership.shared.name.get().cloned().unwrap_or_default();
    let newest = leadership.shared.options.newest_format;
    let cluster = leadership.cluster();
    let servers = cluster.servers().filter(|it| it.generation > Generation(0) && !it.forgotten);
    let servers = servers.map(|it| (Program::Server(it.server), it.newest_format));
    let coordinators = leadership.coordinators.borrow();
    let own_key = leadership.shared.key.get();
    let others = coordinators.0.iter().filter(|(key, _)| Some(*key) != own_key);
    let others = others.map(|(_, known)| &known.record);
    let others = others.map(|it| (Program::Coordinator(it.address.clone()), it.newest_format));
    let leader = (Program::Coordinator(own.clone()), newest);
    let mut programs: Vec<KnownFormat> = servers
        .chain(others)
        .chain([leader])
        .map(|(program, newest)| KnownFormat { program, newest })
        .collect();
    programs.sort_unstable();
    programs
}

/// Refuses a server that does not know the cluster's format.
pub(crate) fn admit(leadership: &Leadership, newest: Format) -> Result<(), Refusal> {
    let format = leadership.cluster().record.format;
    if newest >= format { Ok(()) } else { Err(Status::OldProgram.into()) }
}

/// Changes the settings of a running cluster: all requested ones, or none.
///
/// A request that names a version always gets a new version written, even if it changes nothing.
/// So no delayed copy of a request that saw an earlier version is done after this answer.
pub(crate) async fn change_settings(
    leadership: &Rc<Leadership>,
    message: ChangeSettings,
) -> Outcome {
    let _lock = leadership.try_lock_updates().await?;
    if message.version.is_some_and(|it| Some(it) != leadership.settings_version()) {
        return Err(Status::Outdated.into());
    }
    let present = leadership.cluster().record.clone();
    let mut record = present.clone();
    if let Some(wanted) = message.min_replicas {
        if wanted == 0 || wanted > record.settings.replicas {
            return Err(Status::BadSetting.into());
        }
        record.settings.min_replicas = wanted;
    }
    let mut lacking = Vec::new();
    if let Some(wanted) = message.format {
        if wanted < record.format {
            return Err(Status::BadSetting.into());
        }
        look(leadership).await?;
        lacking = programs(leadership);
        lacking.retain(|it| it.newest < wanted);
        record.format = wanted;
    }
    if !lacking.is_empty() {
        record = present.clone();
    }
    if record != present {
        leadership.put_cluster(record.clone()).await?;
        let (min_replicas, format) = (record.settings.min_replicas, record.format);
        tracing::info!(min_replicas, %format, "the cluster's settings are changed");
    } else if message.version.is_some() {
        leadership.put_cluster(record).await?;
    }
    let record = &leadership.cluster().record;
    let (settings, format) = (record.settings.clone(), record.format);
    Ok(to_body(&SettingsChanged { settings, format, lacking }))
}
