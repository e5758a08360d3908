//! The thread of a door that makes and drops the tables of databases: here a host of its own.

use super::super::user::User;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_client::control::{CreateTable, DropTable};
use thunderhead_client::{Action, Answer, Condition, Operation, Question, Reply, TableId};
use thunderhead_server::{CATALOG_KEY, Databases, TableWork};

/// The databases of the server's process that runs now, or ran last.
pub(crate) type Present = Rc<RefCell<Option<Arc<Databases>>>>;

const CATALOG: &str = "redis";
const PREFIX: &str = "redis-";
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

impl User {
    /// Makes and drops tables until all is over.
    pub(crate) async fn keep_databases(self, present: Present, is_over: Rc<Cell<bool>>) {
        let mut begun: Option<Arc<Databases>> = None;
        let mut last = 0;
        while !is_over.get() {
            self.client().tasks().sleep(PAUSE).await;
            let Some(databases) = present.borrow().clone() else { continue };
            if !begun.as_ref().is_some_and(|begun| Arc::ptr_eq(begun, &databases)) {
                if self.begin_databases(&databases, &mut last).await.is_some() {
                    begun = Some(databases);
                }
                continue;
            }
            match databases.work_now() {
                Some(TableWork::Make) => {
                    last += 1;
                    if let Some(table) = self.ensure_table(&format!("{PREFIX}{last}")).await {
                        databases.add(table);
                    }
                }
                Some(TableWork::Drop(table)) => {
                    let is_dropped = self.drop_table(table).await.is_some();
                    if !is_dropped {
                        databases.drop_table(table);
                    }
                }
                // Only databases of a cluster have such work.
                Some(TableWork::Ensure | TableWork::TakeOver(_)) | None => {}
            }
        }
        self.client().close();
    }

    /// Drops the tables that the catalog does not name, and then lets the door serve. Returns
    /// `None` if that fails.
    async fn begin_databases(&self, databases: &Databases, last: &mut u64) -> Option<()> {
        let table = self.ensure_table(CATALOG).await?;
        let (key, action) = (CATALOG_KEY.to_vec(), Action::Read);
        let read = Operation { table, key, condition: Condition::Always, action };
        let text = match self.client().all(vec![read], PATIENCE).await.pop()? {
            Ok(Answer::Found { value, .. }) => value,
            Ok(Answer::Absent) => Vec::new(),
            _ => return None,
        };
        let named = Databases::tables_of(&text);
        let Ok(Reply::Map(map)) = self.client().ask(Question::Map(None), PATIENCE).await else {
            return None;
        };
        for it in map.tables {
            let Some(number) = it.name.strip_prefix(PREFIX) else { continue };
            *last = number.parse::<u64>().unwrap_or_default().max(*last);
            if !named.contains(&it.id) {
                self.drop_table(it.id).await?;
            }
        }
        databases.set_catalog(table);
        Some(())
    }

    async fn ensure_table(&self, name: &str) -> Option<TableId> {
        let wish = CreateTable::spread(name, 1);
        match self.client().ask(Question::CreateTable(wish), PATIENCE).await {
            Ok(Reply::Table(table)) => return Some(table.id),
            Ok(_) => return None,
            Err(_) => {}
        }
        let question = Question::Map(Some(name.to_owned()));
        match self.client().ask(question, PATIENCE).await {
            Ok(Reply::Map(map)) => map.tables.first().map(|table| table.id),
            _ => None,
        }
    }

    /// Drops a table, which may be gone already.
    async fn drop_table(&self, table: TableId) -> Option<()> {
        let Ok(Reply::Map(map)) = self.client().ask(Question::Map(None), PATIENCE).await else {
            return None;
        };
        let Some(it) = map.tables.into_iter().find(|it| it.id == table) else { return Some(()) };
        let wish = DropTable::named(&it.name);
        match self.client().ask(Question::DropTable(wish), PATIENCE).await {
            Ok(Reply::Done) => Some(()),
            _ => None,
        }
    }
}
