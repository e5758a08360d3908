//! Questions to coordinators that are known by name.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_master::coordinator_client::{CoordinatorClient, CoordinatorReply};
use thunderhead_rpc::{
    CallError, CallId, Component, Context, Node, Opcode, OwnerId, Request, Service,
};
use thunderhead_runtime::names::{AddressUpdate, Addresses, Resolve};
use thunderhead_simulator::Options;
use thunderhead_testkit::{Cluster, Place};
use thunderhead_wire::control::{ClusterStatus, of_body};

/// The owner of the question and of its calls.
const OWNER: OwnerId = OwnerId::only(Component::Node);

/// Asks one question and notes the answer.
struct Asks {
    coordinator: CoordinatorClient,
    answer: Rc<RefCell<Option<Vec<u8>>>>,
}

impl Service for Asks {
    fn start(&mut self, context: &mut Context<'_>) {
        self.coordinator.ask(context, OWNER, Opcode::ClusterStatus, b"{}".to_vec());
    }

    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        _: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        if let CoordinatorReply::Answered { answer, .. } =
            self.coordinator.reply(context, call, outcome)
        {
            *self.answer.borrow_mut() = Some(answer.unwrap());
        }
    }

    fn timer(&mut self, context: &mut Context<'_>, _: OwnerId) {
        self.coordinator.on_timer(context);
    }
}

/// Resolves the coordinators' names to another address.
struct Moved(SocketAddr);

impl Resolve for Moved {
    fn resolve(&self, update: AddressUpdate) {
        update.tell(vec![self.0]);
    }
}

#[test]
fn coordinators_that_do_not_answer_are_looked_for_by_name_again() {
    let mut cluster = Cluster::new(Options::calm(1));
    cluster.add_scripted_coordinator();
    let now = cluster.address(Place::Coordinator(0));
    // No process listens at these.
    let former = [1, 2].map(|more| SocketAddr::new(now.ip(), now.port() + more));
    let answer: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
    let noted = Rc::clone(&answer);
    cluster.add_server(move |boot| {
        let named = Addresses::resolved(former.into(), Box::new(Moved(now)));
        let asks =
            Asks { coordinator: CoordinatorClient::new(named, OWNER), answer: Rc::clone(&noted) };
        Box::new(Node::new(boot.world, boot.transport, asks))
    });
    cluster.simulation.run_for(Duration::from_secs(10));
    let answer = answer.take().expect("an answer");
    let status: ClusterStatus = of_body(&answer).expect("a report");
    assert_eq!(status.cluster, cluster.coordinators.borrow().cluster);
}
