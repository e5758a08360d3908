//! The knowledge of a leadership beside the cluster: open leases, suspected servers, the progress
//! of recoveries. It ends with the leadership. The next leader reads the leases, and asks the
//! servers for the rest again.
//!
//! This is plain data with its bookkeeping, without messages and without writes. The modules above
//! `leadership` send messages, write, and note the results here.

pub(crate) mod attempts;
pub(crate) mod coordinators;
pub(crate) mod inherited;
pub(crate) mod later_state;
pub(crate) mod leases;
pub(crate) mod watch;
