//! Commands about keys with values of any type.

use super::commands::{Command, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from};
use super::parser::Arguments;
use super::stop::Done;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("del", -2, WRITE, del)
        .keys(&[Keys::range("RM delete", 1, -1, 1)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(Group::Generic, "1.0.0", "Deletes keys."),
    Command::new("exists", -2, READONLY | FAST, exists)
        .keys(&[Keys::range("RO", 1, -1, 1)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(Group::Generic, "1.0.0", "Counts the given keys that exist."),
];

fn del(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut count = 0;
    for key in from(arguments, 1) {
        count += i64::from(context.objects.remove(key)?);
    }
    context.reply.integer(count);
    Ok(())
}

fn exists(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut count = 0;
    for key in from(arguments, 1) {
        count += i64::from(context.objects.read(key)?.is_some());
    }
    context.reply.integer(count);
    Ok(())
}
