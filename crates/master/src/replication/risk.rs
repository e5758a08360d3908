//! Segments with fewer replicas than the cluster wants: how many bytes, since when, and the reports
//! of them.

use super::State;
use super::segment::Segment;
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::SegmentId;
use thunderhead_wire::control::AtRisk;

/// A replica that is made again elsewhere takes less than this: the log is not told of it.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// How often the log is told that it goes on.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Segments that lack replicas.
#[derive(Default)]
pub(super) struct Risk {
    segments: BTreeSet<SegmentId>,
    /// Since when there has been one.
    since: Option<Time>,
    /// When the log was last told.
    told: Option<Time>,
}

impl Risk {
    /// Notes whether a segment lacks replicas.
    pub(super) fn assess(&mut self, id: SegmentId, segment: Option<&Segment>) {
        if segment.is_some_and(Segment::is_short) {
            self.segments.insert(id);
        } else if !self.segments.is_empty() {
            self.segments.remove(&id);
        }
    }

    /// A segment is no more.
    pub(super) fn forget(&mut self, segment: SegmentId) {
        self.segments.remove(&segment);
    }
}

impl State {
    /// Tells the log of segments that lack replicas for long, and when that is over.
    pub(super) fn tell_of_risk(&mut self) {
        let (now, master) = (self.now, self.settings.master);
        if self.risk.segments.is_empty() {
            self.risk.since = None;
            if self.risk.told.take().is_some() {
                let replicas = self.settings.replicas;
                tracing::info!(%master, replicas, "all segments have all their replicas again");
            }
            return;
        }
        let since = *self.risk.since.get_or_insert(now);
        let due = self.risk.told.map_or(since + TOLD_AFTER, |told| told + TOLD_EVERY);
        if due > now {
            return self.wake_at(due);
        }
        self.risk.told = Some(now);
        self.wake_at(now + TOLD_EVERY);
        if let Some(risk) = self.at_risk() {
            tracing::warn!(%master, "{}", self.risk_remark(&risk));
        }
    }

    /// Returns the sum of all that lack replicas now.
    pub(super) fn at_risk(&self) -> Option<AtRisk> {
        let mut risk = AtRisk { replicas: self.settings.replicas, ..AtRisk::default() };
        for segment in self.risk.segments.iter().filter_map(|id| self.segments.get(id)) {
            risk.segments += 1;
            risk.bytes += u64::from(segment.length);
            let replicas = u32::try_from(segment.replicas()).unwrap_or(u32::MAX);
            risk.replicas = risk.replicas.min(replicas);
        }
        let heads = self.heads.iter().filter_map(|id| self.segments.get(id));
        risk.is_blocked = heads.clone().any(|it| it.awaits_replicas(self.settings.min_replicas));
        let since = self.risk.since.unwrap_or(self.now);
        let millis = self.now.0.saturating_sub(since.0) / 1_000_000;
        risk.for_ms = millis;
        (risk.segments > 0).then_some(risk)
    }

    /// The same in words.
    pub(super) fn risk_remark(&self, risk: &AtRisk) -> String {
        let AtRisk { segments, bytes, replicas, for_ms, is_blocked } = risk;
        let (wanted, min) = (self.settings.replicas, self.settings.min_replicas);
        let others = self.servers.up().filter(|(id, _)| *id != self.settings.server).count();
        let have = if *segments == 1 { "segment has" } else { "segments have" };
        let up = if others == 1 { "server is" } else { "servers are" };
        let (size, unit) = match bytes {
            ..=0xf_ffff => (*bytes as f64 / f64::from(1 << 10), "KiB"),
            _ => (*bytes as f64 / f64::from(1 << 20), "MiB"),
        };
        let mut remark = format!(
            "{segments} {have} fewer than {wanted} replicas ({size:.1} {unit}), the worst {replicas}, for {} s; \
             {others} other {up} up",
            for_ms / 1000
        );
        if *is_blocked {
            remark +=
                &format!("; WRITES WAIT for replicas: at least {min} must be there (min_replicas)");
        }
        let behind = self.servers.behind();
        if !behind.is_empty() {
            remark += &format!("; too slow or failing are the disks of {}", behind.join(", "));
        }
        remark
    }
}
