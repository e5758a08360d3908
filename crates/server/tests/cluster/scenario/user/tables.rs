//! Tables and tablets: users create, drop, split and move them.

use super::{TABLES, User};
use std::time::Duration;
use thunderhead_client::control::{
    ChangeSettings, CreateTable, DropTable, MigrateTablet, SplitTablet, TableInfo,
};
use thunderhead_client::{Error, KeyHash, Question, Reply, Status, TableId};
use thunderhead_wire::MasterId;

/// The number of tablets up to which the tablets of a table are split.
const TABLETS: usize = 6;

/// A table that only one user uses.
pub(super) struct Own {
    name: String,
    /// The table's id, if it exists.
    id: Option<TableId>,
}

impl User {
    pub(super) async fn split(&mut self) {
        let name = TABLES[self.random.below(2) as usize].to_owned();
        let patience = Duration::from_secs(3);
        let answer = self.client.ask(Question::Map(Some(name.clone())), patience).await;
        let Ok(Reply::Map(map)) = answer else { return self.may_fail(&answer) };
        let Some(table) = map.tables.first() else {
            return self.seeing.fail(format!("{name} is lost"));
        };
        if table.tablets.len() >= TABLETS || self.seeing.plan.is_narrow_whole && name == TABLES[1] {
            return;
        }
        let at = KeyHash(self.random.number());
        let answer =
            self.client.ask(Question::SplitTablet(SplitTablet { table: name, at }), patience).await;
        match &answer {
            Ok(Reply::Table(table)) => {
                self.seeing.seen.borrow_mut().splits += 1;
                self.must_be_whole(table);
            }
            _ => self.may_fail(&answer),
        }
    }

    pub(super) async fn migrate(&mut self) {
        let name = TABLES[self.random.below(2) as usize].to_owned();
        let patience = Duration::from_secs(5);
        let answer = self.client.ask(Question::ClusterStatus, patience).await;
        let Ok(Reply::Cluster(status)) = answer else { return self.may_fail(&answer) };
        let Some(table) = status.map.tables.iter().find(|table| table.name == name) else {
            return self.seeing.fail(format!("{name} is lost"));
        };
        let masters: Vec<_> =
            status.servers.servers.iter().flat_map(|it| &it.shards).map(|it| it.master).collect();
        let tablet = self.random.pick(&table.tablets).copied();
        let (Some(tablet), Some(to)) = (tablet, self.random.pick(&masters).copied()) else {
            return;
        };
        let wish = MigrateTablet { table: name, first: tablet.first, to };
        let answer = self.client.ask(Question::MigrateTablet(wish), patience).await;
        match &answer {
            Ok(Reply::Table(table)) => {
                self.seeing.seen.borrow_mut().migrations += 1;
                self.must_be_whole(table);
            }
            // The tablet may be another one by now, and the master gone.
            Err(Error::Refused(_)) => {}
            _ => self.may_fail(&answer),
        }
    }

    /// Moves the first tablet of a table.
    pub(crate) async fn move_to(self, place: usize, to: MasterId) {
        let table = TABLES[place].to_owned();
        let wish = MigrateTablet { table, first: KeyHash::MIN, to };
        let patience = Duration::from_secs(1);
        let answer = self.client.ask(Question::MigrateTablet(wish), patience).await;
        match &answer {
            Ok(_) => self.seeing.seen.borrow_mut().migrations += 1,
            Err(Error::Refused(_)) => {}
            _ => self.may_fail(&answer),
        }
    }

    /// Changes the least replicas for an acknowledged write.
    pub(crate) async fn sets_min_replicas(self, wanted: u32) {
        let changes = ChangeSettings { min_replicas: Some(wanted), ..ChangeSettings::default() };
        let patience = Duration::from_secs(3);
        let answer = self.client.ask(Question::ChangeSettings(changes), patience).await;
        match &answer {
            Ok(Reply::Settings(changed)) if changed.settings.min_replicas == wanted => {
                self.seeing.seen.borrow_mut().changes += 1;
            }
            _ => self.may_fail(&answer),
        }
        self.client.close();
    }

    /// Creates a table, uses it, or drops it.
    pub(super) async fn own_table(&mut self) {
        let patience = Duration::from_secs(5);
        let mut own = self.own.take().unwrap_or_else(|| {
            let mut seen = self.seeing.seen.borrow_mut();
            seen.names += 1;
            Own { name: format!("own {}", seen.names), id: None }
        });
        // Without an answer it is unknown whether the table exists, and the name is not used again.
        // A duplicated request (a datagram) may be refused because its first copy succeeded.
        let comes_once = self.seeing.plan.link.streams;
        match own.id {
            None => {
                let server_span = self.random.within(1..4) as u32;
                let wish = CreateTable::spread(own.name.clone(), server_span);
                match self.client.ask(Question::CreateTable(wish), patience).await {
                    Ok(Reply::Table(table)) => {
                        self.seeing.seen.borrow_mut().made += 1;
                        self.must_be_whole(&table);
                        own.id = Some(table.id);
                        self.own = Some(own);
                    }
                    Err(Error::Refused(Status::TableExists)) if !comes_once => {}
                    Err(Error::Refused(Status::TableExists)) => {
                        self.seeing.fail(format!("{} exists, and no user created it", own.name));
                    }
                    other => self.may_fail(&other),
                }
            }
            Some(table) if self.random.chance(0.6) => {
                self.operate(table).await;
                self.own = Some(own);
            }
            Some(_) => {
                let wish = DropTable::named(&own.name);
                match self.client.ask(Question::DropTable(wish), patience).await {
                    Ok(Reply::Done) => {
                        own.id = None;
                        self.own = Some(own);
                    }
                    Err(Error::Refused(Status::NoSuchTable)) if !comes_once => {}
                    Err(Error::Refused(Status::NoSuchTable)) => {
                        self.seeing.fail(format!("{} is lost", own.name));
                    }
                    other => self.may_fail(&other),
                }
            }
        }
    }

    fn must_be_whole(&self, table: &TableInfo) {
        let mut next = Some(0);
        for tablet in &table.tablets {
            if next != Some(tablet.first.0) {
                return self.seeing.fail(format!("{} is not whole", table.name));
            }
            next = tablet.last.0.checked_add(1);
        }
        if next.is_some() {
            self.seeing.fail(format!("{} is not whole", table.name));
        }
    }

    /// Checks that an answer is one of the failures that are allowed during faults.
    fn may_fail(&self, answer: &Result<Reply, Error>) {
        match answer {
            Err(Error::TimedOut(_) | Error::Unknown(_)) => {}
            // Changes fail while the metastore is away, or while another change is in progress. A
            // place is split only once.
            Err(Error::Refused(
                Status::MetastoreUnavailable
                | Status::NoServers
                | Status::Busy
                | Status::InProgress
                | Status::DeadlineExceeded
                | Status::BadRange,
            )) => {}
            other => self.seeing.fail(format!("{other:?}")),
        }
    }
}
