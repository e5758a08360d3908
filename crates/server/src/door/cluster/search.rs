//! The search of a door for the owners of the parts: for its own clients, and for the replies about
//! nodes.

use super::part::{News, Part};
use super::{Client, ClusterDoor, State, WATCH_PAUSE};
use thunderhead_doors::resp::{Node, Nodes};
use thunderhead_master::Shard;
use thunderhead_master::coordinator_client::CoordinatorReply;
use thunderhead_rpc::{CallError, CallId, Context};

impl ClusterDoor {
    pub(crate) fn on_coordinator_timer(&mut self, context: &mut Context<'_>) {
        self.coordinator.on_timer(context);
    }

    /// Takes the coordinator's answer about the owner.
    pub(crate) fn on_coordinator_reply(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let reply = self.coordinator.reply(context, call, outcome);
        let CoordinatorReply::Answered { question, answer, .. } = reply else { return };
        let Some(part) = self.parts.iter_mut().find(|part| part.question == Some(question)) else {
            return;
        };
        let news = part.take_map(context, answer, self.master);
        self.take_news(context, news);
        for (stream, client) in &self.clients {
            if matches!(client.state, State::Guest { asked: true, .. }) {
                context.resume_stream(*stream);
            }
        }
    }

    /// Takes the owner's answer about its door.
    pub(crate) fn on_found(
        &mut self,
        context: &mut Context<'_>,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        let Some(part) = self.parts.iter_mut().find(|part| part.has_called(call)) else { return };
        let news = part.take_found(outcome);
        self.take_news(context, news);
    }

    pub(super) fn take_news(&mut self, context: &mut Context<'_>, news: News) {
        match news {
            News::None => {}
            News::Resume => self.resume_waiting(context),
            News::NoDoor(master, address) if self.complains(context.now()) => tracing::error!(
                %master,
                %address,
                "the shard with the keys of Redis's clients has no door for them, so no server serves them; set server.redis on all servers"
            ),
            News::NoDoor(..) => {}
        }
        self.tell_nodes(context);
    }

    /// Offers the bytes of all clients again that wait for the owner's door.
    pub(super) fn resume_waiting(&self, context: &mut Context<'_>) {
        let waits = |client: &Client| client.state == State::Waiting && client.since.is_some();
        for (stream, _) in self.clients.iter().filter(|(_, client)| waits(client)) {
            context.resume_stream(*stream);
        }
        for (stream, _) in self.routed.iter().filter(|(_, routed)| routed.waits()) {
            context.resume_stream(*stream);
        }
    }

    /// Searches for the owners of the parts for which clients wait.
    pub(super) fn search_for_clients(&mut self, context: &mut Context<'_>, shard: Option<&Shard>) {
        let waits = |client: &Client| client.since.is_some();
        let mut wanted: Vec<u32> =
            self.clients.values().filter(|it| waits(it)).map(|client| client.part).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut resumes = false;
        for number in wanted {
            let is_owned = self.owns(shard, number);
            let Some(part) = self.parts.get_mut(number as usize) else { continue };
            if is_owned || part.owner.is_some() {
                resumes = true;
            } else {
                part.search(context, &mut self.coordinator);
            }
        }
        if resumes {
            self.resume_waiting(context);
        }
    }

    /// Looks for the owners of all parts, for the replies about nodes: of the parts without a known
    /// owner, and of one of the others.
    pub(super) fn watch(&mut self, context: &mut Context<'_>, shard: Option<&Shard>) {
        let now = context.now();
        if now < self.watches_at {
            return self.set_timer(context, self.watches_at.since(now));
        }
        self.watches_at = now + WATCH_PAUSE;
        self.grow();
        self.watched = (self.watched + 1) % self.parts.len().max(1);
        for number in 0..self.parts.len() {
            if self.owns(shard, number as u32) {
                continue;
            }
            let part = &mut self.parts[number];
            if number == self.watched {
                part.ask_for_map(context, &mut self.coordinator);
            } else {
                part.search(context, &mut self.coordinator);
            }
        }
        self.tell_nodes(context);
        self.set_timer(context, WATCH_PAUSE);
    }

    /// Tells the parts which nodes there are, if that has changed.
    pub(super) fn tell_nodes(&mut self, context: &Context<'_>) {
        if !self.has_cluster_ports() {
            return;
        }
        let (cluster, master) = (context.cluster().map_or(0, |cluster| cluster.0), self.master);
        let ports = self.ports.as_ref().map_or(&[][..], |ports| &ports.of_parts);
        let node = |(number, part): (usize, &mut Part)| {
            let own = ports.get(number).map(|(port, _)| port);
            part.node(cluster, master, own)
        };
        let nodes: Vec<Option<Node>> = self.parts.iter_mut().enumerate().map(node).collect();
        if nodes != self.nodes {
            self.nodes = nodes;
            self.give_nodes();
        }
    }

    pub(super) fn give_nodes(&mut self) {
        for part in &mut self.parts {
            if let Some(nodes) = Nodes::new(part.number, self.nodes.clone()) {
                part.local.protocol.set_nodes(nodes);
            }
        }
    }
}
