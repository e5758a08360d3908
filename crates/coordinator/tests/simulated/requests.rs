//! Bad requests: the coordinator refuses them without any effect.

use crate::control_plane::{ControlPlane, create, drop_table, options};
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{Empty, Enlist, Enlisted, Followed, RaiseEpoch, Recovered};
use thunderhead_wire::{ClusterId, Epoch, Format, MasterId, RecoveryId, SegmentId, Status};

#[test]
fn bad_requests_are_refused_without_any_effect() {
    let mut cluster = ControlPlane::new(12, 1, 1, &options());
    assert_eq!(
        create(&mut ControlPlane::new(13, 1, 0, &options()), "t", 1),
        Err(Status::NoServers)
    );
    cluster.until_all_are_there();
    for opcode in Opcode::ALL.iter().filter(|it| (64..=79).contains(&it.code())) {
        for body in [&b""[..], b"{", b"[]]", b"\xff\xfe", b"null", b"7"] {
            let refused = cluster.ask_raw::<Empty>(*opcode, body.to_vec());
            assert_eq!(refused, Err(Status::Malformed), "{opcode}");
        }
    }
    let deep = "[".repeat(100_000).into_bytes();
    assert_eq!(cluster.ask_raw::<Empty>(Opcode::Map, deep), Err(Status::Malformed));
    let long = "x".repeat(256);
    for name in ["", "a\nb", &long] {
        assert_eq!(create(&mut cluster, name, 1), Err(Status::BadName), "{name:?}");
    }
    assert_eq!(create(&mut cluster, "t", 0), Err(Status::Malformed));
    assert!(create(&mut cluster, &long[1..], u32::MAX).is_ok_and(|it| it.tablets.len() == 2));
    let known = cluster.servers[0].borrow().known.unwrap();
    let enlist = Enlist {
        cluster: known.cluster,
        server: known.server,
        nonce: 5,
        host: "h".into(),
        rack: String::new(),
        shards: vec![([10, 0, 0, 9], 1).into()],
        backup: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let bad = [
        Enlist { shards: vec![], ..enlist.clone() },
        Enlist { shards: vec![([0, 0, 0, 0], 1).into()], ..enlist.clone() },
        Enlist { shards: vec![([10, 0, 0, 9], 0).into()], ..enlist.clone() },
        Enlist {
            shards: [enlist.shards.clone(), enlist.shards.clone()].concat(),
            ..enlist.clone()
        },
        Enlist {
            shards: (1..300).map(|it| ([10, 0, 0, 9], it).into()).collect(),
            ..enlist.clone()
        },
        Enlist { host: long.clone(), ..enlist.clone() },
        Enlist { rack: long, ..enlist.clone() },
    ];
    for message in bad {
        let refused = cluster.ask::<Enlisted>(Opcode::Enlist, &message);
        assert_eq!(refused.map(|it| it.generation), Err(Status::Malformed), "{message:?}");
    }
    let other = Enlist { cluster: ClusterId(1), ..enlist };
    assert_eq!(cluster.ask::<Enlisted>(Opcode::Enlist, &other), Err(Status::WrongCluster));
    assert_eq!(drop_table(&mut cluster, "nothing"), Err(Status::NoSuchTable));
    let message = RaiseEpoch { master: MasterId(99), segment: SegmentId(1), epoch: Epoch(1) };
    assert_eq!(cluster.ask::<Empty>(Opcode::RaiseEpoch, &message), Err(Status::Deposed));
    let late = Recovered {
        keeps: false,
        crashed: MasterId(99),
        recovery: RecoveryId(0),
        partition: 0,
        by: MasterId(98),
        outcome: Ok(vec![]),
    };
    assert_eq!(cluster.ask::<Empty>(Opcode::Recovered, &late), Err(Status::Deposed));
    assert_eq!(cluster.ask_raw::<Empty>(Opcode::Read, vec![]), Err(Status::UnknownOpcode));
}
