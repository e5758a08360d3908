//! Components: the parts of a program that serve operations and own calls and timers.
//!
//! A node gives each event to its service. A service with several components must find the
//! component that the event belongs to:
//!
//! ```text
//!  event      belongs to                         found by
//!  request    the component that serves it       Opcode::component, a column of the opcodes' table
//!  reply      the owner that made the call       the OwnerId that the call was made with
//!  timer      the owner that set it              the OwnerId that the timer was set with
//! ```
//!
//! An owner is a part of a component, for example the replication of a shard. A component declares
//! its owners as an enum, with [`owners!`](crate::owners). A `match` on that enum gives each reply
//! and each timer to its owner, and the compiler checks that the `match` knows all owners.
//!
//! # Promises
//!
//! - Two components never have an owner in common: the id of an owner has the component's number.
//! - Routing costs one `match`: no table to search, no allocation, no dynamic dispatch.
//!
//! This module does not promise that a component still awaits the outcome of its call. An owner
//! that ended its work early ignores outcomes that it does not know.

/// A part of a program: it serves the operations that name it in the table of opcodes, and owns the
/// calls and timers of its owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Component {
    /// Every node. It also stands for a service that is not divided into components.
    Node,
    /// The echo service, for measuring.
    Echo,
    /// The toy register, for testing the stack.
    Register,
    /// A shard: tables' objects. It owns all calls and timers of a shard.
    Shard,
    /// The coordinator: servers, tables, tablets, leases.
    Coordinator,
    /// A shard, instructed by the coordinator or by another shard.
    ShardControl,
    /// Every process of the cluster: the list of servers.
    Membership,
    /// A backup: replicas of segments.
    Backup,
}

/// Names the owner of a call or of a timer: a component, and a number that the component gives to
/// one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerId {
    component: Component,
    number: u8,
}

impl OwnerId {
    /// Returns the id of an owner. Components with more than one owner declare them with
    /// [`owners!`](crate::owners).
    #[inline]
    #[must_use]
    pub const fn new(component: Component, number: u8) -> OwnerId {
        OwnerId { component, number }
    }

    /// Returns the id of the only owner of a component.
    #[inline]
    #[must_use]
    pub const fn only(component: Component) -> OwnerId {
        OwnerId::new(component, 0)
    }

    /// Returns the owner's component.
    #[inline]
    #[must_use]
    pub const fn component(self) -> Component {
        self.component
    }

    /// Returns the owner's number in its component.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        self.number
    }
}

/// Declares the owners of a component as an enum: the parts that make calls or set timers.
///
/// The enum converts into [`OwnerId`], and `of` finds the owner with an id. A component has one
/// such enum.
///
/// ```
/// use thunderhead_rpc::{Component, OwnerId, owners};
///
/// owners! {
///     /// The owners of the echo service.
///     enum Owner of Echo {
///         /// Repeats calls.
///         Repeater,
///         /// Counts the time.
///         Clock,
///     }
/// }
///
/// let id = OwnerId::from(Owner::Clock);
/// assert_eq!(Owner::of(id), Some(Owner::Clock));
/// assert_eq!(Owner::of(OwnerId::new(Component::Backup, 1)), None, "another component's");
/// ```
#[macro_export]
macro_rules! owners {
    (
        $(#[$doc:meta])*
        $visibility:vis enum $name:ident of $component:ident {
            $($(#[$owner_doc:meta])* $owner:ident,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        $visibility enum $name {
            $($(#[$owner_doc])* $owner,)*
        }

        impl $name {
            /// Returns the owner with an id, if it is one of this component.
            #[inline]
            #[must_use]
            $visibility fn of(id: $crate::OwnerId) -> Option<$name> {
                const ALL: &[$name] = &[$($name::$owner),*];
                match id.component() {
                    $crate::Component::$component => ALL.get(usize::from(id.number())).copied(),
                    _ => None,
                }
            }
        }

        impl From<$name> for $crate::OwnerId {
            #[inline]
            fn from(owner: $name) -> $crate::OwnerId {
                $crate::OwnerId::new($crate::Component::$component, owner as u8)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    owners! {
        enum Owner of Shard {
            First,
            Second,
        }
    }

    #[test]
    fn an_id_leads_back_to_its_owner_and_to_no_owner_of_another_component() {
        for owner in [Owner::First, Owner::Second] {
            let id = OwnerId::from(owner);
            assert_eq!((id.component(), Owner::of(id)), (Component::Shard, Some(owner)));
            assert_eq!(Owner::of(OwnerId::new(Component::Backup, id.number())), None);
        }
        assert_eq!(Owner::of(OwnerId::new(Component::Shard, 2)), None, "there are only two");
        assert_eq!(OwnerId::only(Component::Shard), Owner::First.into());
    }
}
