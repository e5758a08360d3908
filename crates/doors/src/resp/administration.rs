//! Commands about the server: its settings and its memory.

use super::bounds::integer;
use super::commands::{
    ADMIN, Command, DANGEROUS, FAST, Group, Keys, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT,
    READONLY, STALE, by_subcommand,
};
use super::connection::REDIS_VERSION;
use super::context::{Context, from, is};
use super::counts::Counts;
use super::long_string::LongString;
use super::parser::Arguments;
use super::settings::Settings;
use super::stop::{self, Done, Stop};
use super::store::Kind;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("config", -2, 0, by_subcommand)
        .subcommands(&[
            Command::new("config|help", 2, LOADING | STALE, config_help).about(
                Group::Server,
                "5.0.0",
                "Describes the subcommands.",
            ),
            Command::new("config|set", -4, ADMIN | NOSCRIPT | LOADING | STALE, config_set)
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .about(Group::Server, "2.0.0", "Changes settings until the server restarts."),
            Command::new("config|rewrite", 2, ADMIN | NOSCRIPT | LOADING | STALE, config_rewrite)
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .about(
                    Group::Server,
                    "2.8.0",
                    "Refused: settings come from the server's own configuration.",
                ),
            Command::new("config|get", -3, ADMIN | NOSCRIPT | LOADING | STALE, config_get).about(
                Group::Server,
                "2.0.0",
                "Returns settings.",
            ),
            Command::new(
                "config|resetstat",
                2,
                ADMIN | NOSCRIPT | LOADING | STALE,
                config_resetstat,
            )
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Server, "2.0.0", "Sets counts of INFO to 0."),
        ])
        .about(Group::Server, "2.0.0", "Commands about settings."),
    Command::new("time", 1, LOADING | STALE | FAST, time).tips(&["nondeterministic_output"]).about(
        Group::Server,
        "2.6.0",
        "Returns the time, in seconds and microseconds.",
    ),
    Command::new("role", 1, NOSCRIPT | LOADING | STALE | FAST | DANGEROUS, role)
        .about(
            Group::Server,
            "2.8.12",
            "Returns the role of the server in a replication, which is that of a master.",
        )
        .categories("@admin"),
    Command::new("lolwut", -1, READONLY | FAST, lolwut).about(
        Group::Server,
        "5.0.0",
        "Returns the version, in a friendly way.",
    ),
    Command::new("lastsave", 1, LOADING | STALE | FAST | DANGEROUS, lastsave)
        .tips(&["nondeterministic_output"])
        .about(
            Group::Server,
            "1.0.0",
            "Returns the time of the last update that is safe, which is now.",
        )
        .categories("@admin"),
    Command::new("save", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI, save).about(
        Group::Server,
        "1.0.0",
        "Answers at once: updates are saved before their replies.",
    ),
    Command::new("bgsave", -1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, bgsave).about(
        Group::Server,
        "1.0.0",
        "Answers at once: updates are saved before their replies.",
    ),
    Command::new("bgrewriteaof", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, bgrewriteaof).about(
        Group::Server,
        "1.0.0",
        "Answers at once: the log is cleaned all the time.",
    ),
    Command::new("memory", -2, 0, by_subcommand)
        .subcommands(&[
            Command::new("memory|doctor", 2, 0, memory_doctor)
                .tips(&[
                    "nondeterministic_output",
                    "request_policy:all_shards",
                    "response_policy:special",
                ])
                .about(Group::Server, "4.0.0", "Returns a report on memory."),
            Command::new("memory|malloc-stats", 2, 0, memory_malloc_stats)
                .tips(&[
                    "nondeterministic_output",
                    "request_policy:all_shards",
                    "response_policy:special",
                ])
                .about(Group::Server, "4.0.0", "Returns a text about the allocator."),
            Command::new("memory|purge", 2, 0, memory_purge)
                .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
                .about(
                    Group::Server,
                    "4.0.0",
                    "Accepted without effect: the log is cleaned all the time.",
                ),
            Command::new("memory|stats", 2, 0, memory_stats)
                .tips(&[
                    "nondeterministic_output",
                    "request_policy:all_shards",
                    "response_policy:special",
                ])
                .about(Group::Server, "4.0.0", "Returns figures about memory."),
            Command::new("memory|help", 2, LOADING | STALE, memory_help).about(
                Group::Server,
                "4.0.0",
                "Describes the subcommands.",
            ),
            Command::new("memory|usage", -3, READONLY, memory_usage)
                .keys(&[Keys::one("RO", 2)])
                .about(Group::Server, "4.0.0", "Estimates the bytes of an object."),
        ])
        .about(Group::Server, "4.0.0", "Commands about memory."),
    Command::new("debug", -2, ADMIN | NOSCRIPT | LOADING | STALE, debug).about(
        Group::Server,
        "1.0.0",
        "A few harmless commands for tests.",
    ),
];

fn config_get(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let found = context.state.settings.matching(from(arguments, 2));
    context.reply.map(found.len());
    let is_of_cluster = context.is_of_cluster();
    for (name, value) in found {
        // A name that is no pattern keeps its letters, if it comes before all patterns that fit.
        let asked = from(arguments, 2).find(|asked| Settings::fits(asked, name));
        let asked = asked.filter(|asked| asked.eq_ignore_ascii_case(name.as_bytes()));
        context.reply.string(asked.unwrap_or(name.as_bytes()));
        match name {
            "cluster-enabled" if is_of_cluster => context.reply.string(b"yes"),
            _ => context.reply.string(&value),
        }
    }
    Ok(())
}

fn config_set(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if !arguments.len().is_multiple_of(2) {
        return Err(stop::SYNTAX);
    }
    let failed = |name: &str, reason: &str| {
        Stop::error_of(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
        ))
    };
    let mut names = Vec::new();
    for at in (2..arguments.len()).step_by(2) {
        let Some(name) = Settings::name_of(&arguments[at]) else {
            let begin = b"ERR Unknown option or number of arguments for CONFIG SET - '";
            return Err(Stop::error_of([&begin[..], &arguments[at], b"'"].concat()));
        };
        if names.contains(&name) {
            return Err(failed(name, "duplicate parameter"));
        }
        names.push(name);
    }
    let mut settings = context.state.settings.clone();
    let sets_password = names.contains(&"requirepass");
    for (name, value) in names.into_iter().zip(from(arguments, 3).step_by(2)) {
        settings.set(name, value).map_err(|reason| failed(name, &reason))?;
    }
    if sets_password {
        settings.users.save(&mut context.objects)?;
    }
    context.state.settings = settings;
    context.ok();
    Ok(())
}

fn config_resetstat(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.state.counts = Counts::default();
    context.ok();
    Ok(())
}

fn config_rewrite(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error("ERR The server is running without a config file"))
}

fn config_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "config");
    Ok(())
}

fn time(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let now = context.objects.now();
    context.reply.array(2);
    context.reply.string((now / 1000).to_string().as_bytes());
    context.reply.string((now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

fn role(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.array(3);
    context.reply.string(b"master");
    context.reply.integer(0);
    context.reply.array(0);
    Ok(())
}

fn lolwut(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let text = format!(
        "   _\n _( )_\n(_   _)_   Thunderhead\n  /_/(___)  speaks the protocol of Redis {REDIS_VERSION}\n"
    );
    context.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn lastsave(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let now = context.objects.now();
    context.reply.integer((now / 1000) as i64);
    Ok(())
}

// An update is safe before its reply leaves, so there is nothing to save.

fn save(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.ok();
    Ok(())
}

fn bgsave(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 2 || arguments.get(1).is_some_and(|word| !is(word, "SCHEDULE")) {
        return Err(stop::SYNTAX);
    }
    context.reply.simple("Background saving started");
    Ok(())
}

fn bgrewriteaof(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.simple("Background append only file rewriting started");
    Ok(())
}

/// The bytes of an object beside its key and its value, about.
const OBJECT_BYTES: usize = 48;

fn memory_usage(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    for at in (3..arguments.len()).step_by(2) {
        match (is(&arguments[at], "SAMPLES"), arguments.get(at + 1)) {
            (true, Some(count)) if integer(count)? >= 0 => {}
            _ => return Err(stop::SYNTAX),
        }
    }
    let key = &arguments[2];
    let bytes = match context.objects.peek(key)? {
        Some(found) if found.kind == Kind::LongString => Some(LongString::of(&found)?.length()),
        found => found.map(|found| found.value.len()),
    };
    match bytes {
        Some(bytes) => context.reply.integer((bytes + key.len() + OBJECT_BYTES) as i64),
        None => context.reply.null(),
    }
    Ok(())
}

fn memory_doctor(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let text = "Memory is a log that is cleaned all the time. See the status of Thunderhead.";
    context.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn memory_stats(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let keys = context.objects.objects(context.objects.database)?;
    let used = context.facts.used_memory;
    let figures = [
        ("peak.allocated", context.facts.used_memory_peak),
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("keys.count", keys),
        ("keys.bytes-per-key", used.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", used),
    ];
    context.reply.map(figures.len());
    for (name, figure) in figures {
        context.reply.string(name.as_bytes());
        context.reply.integer(figure as i64);
    }
    Ok(())
}

fn memory_purge(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.ok();
    Ok(())
}

fn memory_malloc_stats(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.verbatim(*b"txt", b"Stats not supported for the current allocator");
    Ok(())
}

fn memory_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "memory");
    Ok(())
}

fn debug(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let name = &arguments[1];
    match (arguments.get(2), arguments.len()) {
        (Some(time), _) if is(name, "SLEEP") => {
            if time != b"0" {
                return Err(Stop::error("ERR DEBUG SLEEP is refused: it would stop all clients"));
            }
        }
        (Some(_), _) if is(name, "SET-ACTIVE-EXPIRE") || is(name, "QUICKLIST-PACKED-THRESHOLD") => {
        }
        (Some(text), 3) if is(name, "ERROR") => return Err(Stop::error_of(text)),
        (Some(key), 3) if is(name, "OBJECT") => return debug_object(context, key),
        _ => {
            let begin = b"ERR unknown subcommand or wrong number of arguments for '";
            let text = [&begin[..], name, b"'. Try DEBUG HELP."].concat();
            return Err(Stop::error_of(text));
        }
    }
    context.ok();
    Ok(())
}

fn debug_object(context: &mut Context<'_>, key: &[u8]) -> Done {
    let Some(found) = context.objects.peek(key)? else { return Err(stop::NO_SUCH_KEY) };
    let encoding = super::keys::encoding(key, &found);
    let bytes = super::dumps::value_bytes(context, key)?;
    let text = format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:0 \
         lru_seconds_idle:0"
    );
    context.reply.simple(&text);
    Ok(())
}
