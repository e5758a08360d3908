//! The lineages of masters: the former masters whose logs a master took back, directly or through
//! their heirs. The module `recoveries::taking_back` says how heirs are chosen.

use crate::stored::{Former, ServerRecord};
use thunderhead_wire::MasterId;

/// Returns the former masters whose closed replicas `master` owns too: those whose heir it is or
/// was, and theirs.
pub(crate) fn lineage(record: &ServerRecord, master: MasterId) -> Vec<MasterId> {
    trace(record, master, |_| true)
}

/// Returns the former masters of the lineage whose replicas it may free.
pub(crate) fn inherited(record: &ServerRecord, master: MasterId) -> Vec<MasterId> {
    trace(record, master, |former| former.inherited)
}

fn trace(
    record: &ServerRecord,
    master: MasterId,
    counts: impl Fn(&Former) -> bool,
) -> Vec<MasterId> {
    let mut found = vec![master];
    let mut at = 0;
    while let Some(heir) = found.get(at).copied() {
        let of = record.former.iter().filter(|it| it.heir == Some(heir) && counts(it));
        let new: Vec<MasterId> = of.map(|it| it.master).filter(|it| !found.contains(it)).collect();
        found.extend(new);
        at += 1;
    }
    found.remove(0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_has_all_former_masters_up_to_the_heir() {
        let server = br#"{"server":1,"registered":5,"generation":1,"state":"down"}"#;
        let mut record: ServerRecord = serde_json::from_slice(server).expect("all has a default");
        for (master, heir, inherited) in [(1, 2, true), (2, 3, false), (4, 9, true), (5, 3, true)] {
            let former =
                format!(r#"{{"master":{master},"shard":0,"heir":{heir},"inherited":{inherited}}}"#);
            record.former.push(serde_json::from_str(&former).expect("a former master"));
        }
        let ids = |of: Vec<MasterId>| of.into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(ids(lineage(&record, MasterId(3))), [2, 5, 1]);
        assert_eq!(ids(inherited(&record, MasterId(3))), [5]);
        assert_eq!(ids(lineage(&record, MasterId(1))), [0; 0]);
    }
}
