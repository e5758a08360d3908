//! The echo service: replies with the requested number of bytes. It measures and tests the stack
//! itself.
//!
//! A request's body begins with the number of bytes wanted, a little-endian u32; the rest is
//! ballast. The reply repeats the ballast, cut or filled up with zeroes.

use crate::context::{Context, Request};
use crate::node::Service;
use crate::opcode::Opcode;
use thunderhead_wire::Status;

/// The service.
#[derive(Debug, Default)]
pub struct Echo {
    /// Requests answered.
    pub answered: u64,
}

/// The longest reply that may be requested.
pub const BYTES_MAX: usize = 4 << 20;

static ZEROES: [u8; BYTES_MAX] = [0; BYTES_MAX];

impl Service for Echo {
    #[inline]
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        if opcode != Opcode::Echo {
            return context.refuse(reply_to, Status::UnknownOpcode, 0, &[]);
        }
        let Some((wanted, ballast)) = body.split_first_chunk::<4>() else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let wanted = u32::from_le_bytes(*wanted) as usize;
        if wanted > BYTES_MAX {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        }
        self.answered += 1;
        let repeated = &ballast[..ballast.len().min(wanted)];
        context.reply(reply_to, &[repeated, &ZEROES[..wanted - repeated.len()]]);
    }
}
