//! A server of the simulated cluster: it answers every request of a coordinator to servers, and
//! records the commands.

use super::{BACKUP_PORT, Common, SHARD_PORT, Server, Shared, owners};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_metastore::sim::SimStore;
use thunderhead_rpc::{Component, Context, Node, Opcode, Request, Service};
use thunderhead_runtime::Process;
use thunderhead_simulator::Boot;
use thunderhead_testkit::User;
use thunderhead_wire::command::CommandHeader;
use thunderhead_wire::control::{
    BackupInfo, BeginRecovery, Empty, Enlist, Enlisted, FreeRest, HeadOf, Inventory, InventoryOf,
    Known, MastersAfter, MastersHere, OfMaster, Owned, Recover, Recovered, Register, Registered,
    RestLeft, ServerList, ShardStatus, Tablets, Taken, of_body, to_body,
};
use thunderhead_wire::membership::{Presence, Probe, Probed};
use thunderhead_wire::{MasterId, SegmentId, ServerId, Status, TabletRange};

/// A server's process.
pub(super) struct FakeServer {
    number: usize,
    common: Common,
    shared: Shared,
    coordinators: Rc<[SocketAddr]>,
    shards: Vec<SocketAddr>,
    backup: SocketAddr,
    host: String,
    user: Option<User>,
    store: SimStore,
    /// The nonce of its enlistment.
    nonce: u64,
}

const FOR_EVER: Duration = Duration::from_secs(1_000_000);

impl FakeServer {
    pub(super) fn boot(
        boot: Boot,
        (number, common): (usize, &Common),
        shared: &Shared,
        coordinators: &Rc<[SocketAddr]>,
        shards: u16,
        store: &SimStore,
    ) -> Box<dyn Process> {
        let at = |port| SocketAddr::new(boot.address, port);
        let server = FakeServer {
            number,
            common: common.clone(),
            shared: Rc::clone(shared),
            coordinators: Rc::clone(coordinators),
            shards: (0..shards).map(|shard| at(SHARD_PORT + shard)).collect(),
            backup: at(BACKUP_PORT),
            host: boot.address.to_string(),
            user: None,
            store: store.clone(),
            nonce: 0,
        };
        {
            let mut shared = shared.borrow_mut();
            shared.enlisted = None;
            shared.fenced_at.clear();
            shared.telling.clear();
        }
        let addresses = [server.shards.clone(), vec![server.backup]].concat();
        let mut node = Node::new(boot.world, boot.transport, server);
        for address in addresses {
            node.listen(address).unwrap();
        }
        Box::new(node)
    }

    fn is_mine(&self, master: MasterId) -> bool {
        let server = self.shared.borrow();
        server.enlisted.as_ref().is_some_and(|it| it.masters.contains(&master))
    }

    fn presence(&self, probe: &Probe) -> Presence {
        let server = self.shared.borrow();
        let (Some(known), Some(enlisted)) = (server.known, &server.enlisted) else {
            return Presence::Begins(self.nonce);
        };
        let is_here = (known.server, enlisted.generation) == (probe.server, probe.generation);
        if is_here { Presence::Here } else { Presence::Other }
    }

    /// Accepts nothing more from a master.
    fn fence(&self, server: &mut Server, master: MasterId) {
        server.fenced_at.entry(master).or_insert(self.common.truth.get());
    }

    /// Answers for its backup.
    fn back_up(&self, context: &mut Context<'_>, request: &Request<'_>) {
        let mut server = self.shared.borrow_mut();
        if server.backup_is_deaf {
            return;
        }
        let answer = match request.opcode {
            Opcode::Inventory => {
                let InventoryOf { master, deposed, .. } = of_body(request.body).unwrap();
                assert!(deposed);
                self.fence(&mut server, master);
                let replicas = server.replicas.get(&master).cloned().unwrap_or_default();
                Ok(to_body(&Inventory { replicas }))
            }
            Opcode::HeadOf => {
                let HeadOf { master, segment } = of_body(request.body).unwrap();
                self.fence(&mut server, master);
                let mut replicas = server.replicas.get(&master).into_iter().flatten();
                let is_there = replicas.any(|it| it.segment == segment && !it.closed);
                let said = server.heads.get(&master).cloned();
                drop(server);
                let said = said.unwrap_or_else(|| Ok(self.common.head(master)));
                said.and_then(|it| if is_there { Ok(to_body(&it)) } else { Err(Status::NotFound) })
            }
            _ => {
                let message: BeginRecovery = of_body(request.body).unwrap();
                self.fence(&mut server, message.crashed);
                let of_it = server.begun.iter().filter(|it| it.crashed == message.crashed);
                let newest = of_it.map(|it| it.recovery).max().unwrap_or_default();
                assert!(message.recovery >= newest, "numbers only grow");
                match server.does_not_read {
                    Some(status) => Err(status),
                    None => {
                        server.begun.push(message);
                        Ok(to_body(&Empty {}))
                    }
                }
            }
        };
        match answer {
            Ok(body) => context.reply(request.reply_to, &[&body]),
            Err(status) => context.refuse(request.reply_to, status, 0, &[]),
        }
    }

    /// Returns why it does not begin a part, if so.
    fn hinders(&self, message: &Recover) -> Option<Status> {
        let server = self.shared.borrow();
        let key = (message.master, message.recovery, message.partition);
        let of_it = server.telling.iter().filter(|(it, _)| it.0 == key.0);
        let others = of_it.filter(|(it, _)| **it != key);
        let overlaps =
            |range: &TabletRange| message.tablets.iter().any(|it| it.range.overlaps(range));
        let is_at_it = others.flat_map(|(_, ranges)| ranges).any(overlaps);
        server.refuses.or(is_at_it.then_some(Status::InProgress))
    }

    fn recover(&self, message: &Recover) {
        let server = self.shared.borrow();
        if !server.recovers_by_itself && server.trouble.is_none() {
            return;
        }
        let since = |taken: &Taken| Taken { since: SegmentId(taken.since.0 + 7), ..*taken };
        let outcome = match &server.trouble {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(message.tablets.iter().map(since).collect::<Vec<_>>()),
        };
        let report = Recovered {
            keeps: false,
            crashed: message.crashed,
            recovery: message.recovery,
            partition: message.partition,
            by: message.master,
            outcome,
        };
        let (Some(user), shared) = (self.user.clone(), Rc::clone(&self.shared)) else { return };
        let (common, number) = (self.common.clone(), self.number);
        user.tasks.clone().spawn(async move {
            user.tasks.sleep(Duration::from_millis(20)).await;
            let key = (report.by, report.recovery, report.partition);
            if let Ok(taken) = &report.outcome {
                common.begin_log(number, report.by);
                let ranges = taken.iter().map(|it| it.range).collect();
                shared.borrow_mut().telling.insert(key, ranges);
            }
            let body = to_body(&report);
            let answer = user.ask_for(FOR_EVER, Opcode::Recovered, body).await;
            shared.borrow_mut().telling.remove(&key);
            if let (Ok(answer), Ok(taken)) = (answer, report.outcome) {
                let Owned { not_yours, .. } = of_body(&answer).unwrap();
                let fenced = common.fenced_at(report.crashed);
                assert!(common.truth.get() >= fenced + 500_000_000, "it may be read elsewhere");
                let mut server = shared.borrow_mut();
                let has = server.tablets.entry(report.by).or_default();
                let kept = taken.iter().map(|it| it.range).filter(|it| !not_yours.contains(it));
                has.extend(kept);
            }
        });
    }
}

async fn live(user: User, shared: Shared, random: [u64; 2], enlist: Enlist) {
    let (known, place) = (shared.borrow().known, shared.borrow().place);
    let followed = enlist.followed;
    let (nonce, newest_format) = (random[0], enlist.newest_format);
    let address = enlist.shards.first().copied();
    let body = to_body(&Register { known, nonce, place, address, newest_format, followed });
    let registered = user.ask_for(FOR_EVER, Opcode::Register, body).await;
    shared.borrow_mut().refused = registered.as_ref().err().copied();
    let Ok(body) = registered else { return };
    let Registered { cluster, server, is_missing, .. } = of_body(&body).unwrap();
    assert!(!is_missing, "the coordinator takes it for {server}");
    shared.borrow_mut().known = Some(Known { cluster, server });
    let enlist = Enlist { cluster, server, nonce: random[1], ..enlist };
    let body = user.ask_for(FOR_EVER, Opcode::Enlist, to_body(&enlist)).await.expect("enlisted");
    let enlisted: Enlisted = of_body(&body).unwrap();
    assert!(enlisted.servers.servers.iter().any(|it| it.server == server));
    shared.borrow_mut().enlisted = Some(enlisted);
}

impl Service for FakeServer {
    fn start(&mut self, context: &mut Context<'_>) {
        let (caller, tasks) = (context.task_caller(), context.tasks().clone());
        let user = User::with(caller, tasks, self.backup, &self.coordinators);
        self.user = Some(user.clone());
        let random = [context.random().number(), context.random().number()];
        self.nonce = random[1];
        let enlist = Enlist {
            cluster: Default::default(),
            server: ServerId(0),
            nonce: 0,
            host: self.host.clone(),
            rack: String::new(),
            shards: self.shards.clone(),
            backup: Some(BackupInfo {
                address: self.backup,
                read_bytes_per_second: 0,
                place: self.shared.borrow().place,
            }),
            newest_format: self.shared.borrow().newest_format,
            followed: self.shared.borrow().followed,
        };
        context.tasks().spawn(live(user, Rc::clone(&self.shared), random, enlist));
    }

    fn request(&mut self, context: &mut Context<'_>, mut request: Request<'_>) {
        if self.shared.borrow().is_deaf {
            return;
        }
        if request.opcode.is_command() {
            let (header, body) =
                CommandHeader::split(request.body).expect("a command names its leadership");
            let own = self.shared.borrow().known.map(|it| it.cluster);
            assert!(own.is_none_or(|own| own == header.cluster()) && header.token() > 0);
            request.body = body;
            let mut server = self.shared.borrow_mut();
            if header.token() < server.follows {
                let newest = server.follows.to_le_bytes();
                return context.refuse(request.reply_to, Status::OldLeader, 0, &[&newest]);
            }
            server.follows = header.token();
        }
        let done = match request.opcode {
            Opcode::ServersChanged => {
                let list: ServerList = of_body(request.body).unwrap();
                let mut server = self.shared.borrow_mut();
                if list.version > server.list.version {
                    server.list = list;
                }
                true
            }
            Opcode::Probe => {
                let presence = self.presence(&of_body(request.body).unwrap());
                let probed = Probed { presence, list_version: 0, you_are_gone: false };
                return context.reply(request.reply_to, &[&to_body(&probed)]);
            }
            Opcode::TakeTablets | Opcode::DropTablets => {
                let message: Tablets = of_body(request.body).unwrap();
                let mine = self.is_mine(message.master);
                let mut server = self.shared.borrow_mut();
                if server.is_full && request.opcode == Opcode::TakeTablets {
                    drop(server);
                    return context.refuse(request.reply_to, Status::NoSpace, 0, &[]);
                }
                server.options.extend(message.options.iter().copied());
                let has = server.tablets.entry(message.master).or_default();
                for tablet in message.tablets {
                    if mine && request.opcode == Opcode::TakeTablets {
                        has.insert(tablet);
                    } else {
                        has.retain(|it| !tablet.overlaps(it));
                    }
                }
                drop(server);
                if mine {
                    self.common.begin_log(self.number, message.master);
                }
                mine
            }
            Opcode::ShardStatus => {
                let server = self.shared.borrow();
                let (memory_bytes, inherited) = (server.memory_bytes, server.inherited.clone());
                let says_room = memory_bytes > 0 || (server.is_full && !server.hides_its_room);
                let room = if server.is_full { 0 } else { memory_bytes };
                let asked = of_body::<OfMaster>(request.body).map(|of| of.master);
                let status = ShardStatus {
                    master: asked.filter(|it| self.is_mine(*it)).unwrap_or_default(),
                    memory_bytes,
                    room_bytes: says_room.then_some(room),
                    inherited,
                    ..ShardStatus::default()
                };
                return context.reply(request.reply_to, &[&to_body(&status)]);
            }
            Opcode::Inventory | Opcode::HeadOf | Opcode::BeginRecovery => {
                return self.back_up(context, &request);
            }
            Opcode::Recover => {
                let message: Recover = of_body(request.body).unwrap();
                let mine = self.is_mine(message.master);
                if let Some(status) = self.hinders(&message) {
                    return context.refuse(request.reply_to, status, 0, &[]);
                }
                if mine {
                    self.common.check(&message);
                    let same = |it: &Recover| {
                        (it.recovery, it.partition) == (message.recovery, message.partition)
                    };
                    if !self.shared.borrow().recovers.iter().any(same) {
                        self.recover(&message);
                    }
                    self.shared.borrow_mut().recovers.push(message);
                }
                mine
            }
            Opcode::FreeRest => {
                let FreeRest { master, keep } = of_body(request.body).unwrap();
                let mut server = self.shared.borrow_mut();
                if server.backup_is_deaf {
                    return;
                }
                let replicas = server.replicas.entry(master).or_default();
                replicas.retain(|it| it.closed && keep.contains(&it.segment));
                let left = RestLeft { replicas: replicas.len() as u64 };
                return context.reply(request.reply_to, &[&to_body(&left)]);
            }
            Opcode::MastersHere => {
                let MastersAfter { after } = of_body(request.body).unwrap();
                let server = self.shared.borrow();
                if server.backup_is_deaf {
                    return;
                }
                // Few in each answer, so that there are several pages.
                let here = server.replicas.iter().filter(|(_, it)| !it.is_empty());
                let behind = here.map(|(master, _)| *master).filter(|it| *it > after);
                let masters: Vec<MasterId> = behind.take(3).collect();
                let here = MastersHere { more: masters.len() == 3, masters };
                return context.reply(request.reply_to, &[&to_body(&here)]);
            }
            Opcode::FreeMaster => {
                let OfMaster { master } = of_body(request.body).unwrap();
                let owners = owners(&self.store);
                assert!(!owners.contains(&master), "{master} is freed and has tablets");
                let mut server = self.shared.borrow_mut();
                server.replicas.remove(&master);
                server.freed.insert(master);
                true
            }
            other => panic!("{other}"),
        };
        assert_ne!(request.opcode.component(), Component::Coordinator);
        if done {
            context.reply(request.reply_to, &[&to_body(&Empty {})]);
        } else {
            context.refuse(request.reply_to, Status::Deposed, 0, &[]);
        }
    }
}
