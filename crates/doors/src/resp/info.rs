//! `INFO`: the state of the server, in sections.

use super::commands::{Command, DANGEROUS, Group, LOADING, STALE};
use super::connection::REDIS_VERSION;
use super::context::{Context, from, is};
use super::counts::Calls;
use super::parser::Arguments;
use super::stop::{Done, Stop};
use std::fmt::Write;

pub(super) const COMMANDS: &[Command] =
    &[Command::new("info", -1, LOADING | STALE | DANGEROUS, info)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .about(Group::Server, "1.0.0", "Describes the server, in sections.")];

/// The function that writes a section.
type Section = fn(&mut Context<'_>, &mut String) -> Result<(), Stop>;

/// The sections, with their names, and whether they are shown without being asked for.
const SECTIONS: [(&str, &str, bool, Section); 11] = [
    ("server", "Server", true, server),
    ("clients", "Clients", true, clients),
    ("memory", "Memory", true, memory),
    ("persistence", "Persistence", true, persistence),
    ("stats", "Stats", true, stats),
    ("replication", "Replication", true, replication),
    ("cpu", "CPU", true, processor),
    ("commandstats", "Commandstats", false, commands),
    ("errorstats", "Errorstats", true, errors),
    ("cluster", "Cluster", true, cluster),
    ("keyspace", "Keyspace", true, databases),
];

fn info(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_asked = |name: &str| from(arguments, 1).any(|word| is(word, name));
    let has_default = arguments.len() == 1 || is_asked("default");
    let has_all = is_asked("all") || is_asked("everything");
    let mut text = String::new();
    for (name, title, is_default, write) in SECTIONS {
        if has_all || has_default && is_default || is_asked(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            line(&mut text, format_args!("# {title}"));
            write(context, &mut text)?;
        }
    }
    context.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Writes a line.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A string takes every text.
    let _ = text.write_fmt(line);
    text.push_str("\r\n");
}

fn server(context: &mut Context<'_>, text: &mut String) -> Done {
    let (now, is_of_cluster) = (context.objects.now(), context.is_of_cluster());
    let (facts, options) = (context.facts, &context.state.options);
    let (uptime, days) = (facts.uptime_seconds, facts.uptime_seconds / 86_400);
    line(text, format_args!("redis_version:{REDIS_VERSION}"));
    line(text, format_args!("server_name:thunderhead"));
    line(text, format_args!("thunderhead_version:{}", env!("CARGO_PKG_VERSION")));
    line(text, format_args!("redis_git_sha1:00000000"));
    line(text, format_args!("redis_git_dirty:0"));
    line(text, format_args!("redis_build_id:0"));
    let mode = if is_of_cluster { "cluster" } else { "standalone" };
    line(text, format_args!("redis_mode:{mode}"));
    line(text, format_args!("os:{} {}", std::env::consts::OS, std::env::consts::ARCH));
    line(text, format_args!("arch_bits:64"));
    line(text, format_args!("process_id:{}", facts.process));
    line(text, format_args!("run_id:{}", options.run_id));
    line(text, format_args!("tcp_port:{}", options.port));
    line(text, format_args!("server_time_usec:{}", now.saturating_mul(1000)));
    line(text, format_args!("uptime_in_seconds:{uptime}"));
    line(text, format_args!("uptime_in_days:{days}"));
    line(text, format_args!("hz:10"));
    line(text, format_args!("configured_hz:10"));
    line(text, format_args!("executable:"));
    line(text, format_args!("config_file:"));
    Ok(())
}

fn clients(context: &mut Context<'_>, text: &mut String) -> Done {
    let state = &context.state;
    let subscribers = state.clients.values().filter(|client| client.is_subscriber()).count();
    let watching = state.clients.values().filter(|client| !client.watched.is_empty()).count();
    line(text, format_args!("connected_clients:{}", state.clients.len()));
    line(text, format_args!("cluster_connections:0"));
    line(text, format_args!("maxclients:{}", state.options.clients_max));
    line(text, format_args!("blocked_clients:{}", state.blocked.len() + state.paused.len()));
    line(text, format_args!("tracking_clients:{}", state.tracking.counts()[0]));
    line(text, format_args!("pubsub_clients:{subscribers}"));
    line(text, format_args!("watching_clients:{watching}"));
    line(text, format_args!("total_watched_keys:{}", state.watches.len()));
    let (keys, of_groups) = state.blocked.keys();
    line(text, format_args!("total_blocking_keys:{keys}"));
    line(text, format_args!("total_blocking_keys_on_nokey:{of_groups}"));
    Ok(())
}

/// Returns a number of bytes for people.
fn human(bytes: u64) -> String {
    let mut number = bytes as f64;
    for unit in ["B", "K", "M", "G", "T"] {
        if number < 1024.0 {
            return if unit == "B" { format!("{bytes}B") } else { format!("{number:.2}{unit}") };
        }
        number /= 1024.0;
    }
    format!("{number:.2}P")
}

fn memory(context: &mut Context<'_>, text: &mut String) -> Done {
    let (facts, state) = (context.facts, &context.state);
    for (name, bytes) in [
        ("used_memory", facts.used_memory),
        ("used_memory_rss", facts.resident_memory),
        ("used_memory_peak", facts.used_memory_peak),
        ("total_system_memory", facts.machine_memory),
        ("maxmemory", state.options.memory_bytes),
    ] {
        line(text, format_args!("{name}:{bytes}"));
        line(text, format_args!("{name}_human:{}", human(bytes)));
    }
    line(text, format_args!("used_memory_dataset:{}", facts.used_memory));
    let (scripts, script_bytes) = state.scripts.use_of_memory();
    line(text, format_args!("used_memory_lua:{script_bytes}"));
    line(text, format_args!("used_memory_lua_human:{}", human(script_bytes as u64)));
    line(text, format_args!("used_memory_vm_eval:{script_bytes}"));
    line(text, format_args!("number_of_cached_scripts:{scripts}"));
    line(text, format_args!("maxmemory_policy:{}", state.settings.policy.name()));
    line(text, format_args!("mem_fragmentation_ratio:1.00"));
    line(text, format_args!("mem_allocator:log"));
    line(text, format_args!("active_defrag_running:0"));
    line(text, format_args!("lazyfree_pending_objects:0"));
    Ok(())
}

fn persistence(context: &mut Context<'_>, text: &mut String) -> Done {
    let now = context.objects.now() / 1000;
    let is_kept = u8::from(context.state.options.is_kept);
    line(text, format_args!("loading:0"));
    line(text, format_args!("async_loading:0"));
    line(text, format_args!("rdb_changes_since_last_save:0"));
    line(text, format_args!("rdb_bgsave_in_progress:0"));
    line(text, format_args!("rdb_last_save_time:{now}"));
    line(text, format_args!("rdb_last_bgsave_status:ok"));
    line(text, format_args!("rdb_last_bgsave_time_sec:-1"));
    line(text, format_args!("rdb_current_bgsave_time_sec:-1"));
    line(text, format_args!("aof_enabled:{is_kept}"));
    line(text, format_args!("aof_rewrite_in_progress:0"));
    line(text, format_args!("aof_rewrite_scheduled:0"));
    line(text, format_args!("aof_last_bgrewrite_status:ok"));
    line(text, format_args!("aof_last_write_status:ok"));
    Ok(())
}

fn stats(context: &mut Context<'_>, text: &mut String) -> Done {
    let (facts, state) = (context.facts, &context.state);
    let counts = &state.counts;
    let connections = facts.connections.max(counts.connections);
    let (channels, patterns) = state.channels.counts();
    let denied = state.acl_log.counts();
    let [_, tracked_keys, tracked_items, tracked_prefixes] = state.tracking.counts();
    for (name, number) in [
        ("total_connections_received", connections),
        ("total_commands_processed", counts.commands),
        ("instantaneous_ops_per_sec", 0),
        ("total_net_input_bytes", facts.received_bytes),
        ("total_net_output_bytes", facts.sent_bytes),
        ("rejected_connections", facts.rejected),
        ("expired_keys", facts.expired),
        ("evicted_keys", facts.evicted),
        ("keyspace_hits", counts.hits),
        ("keyspace_misses", counts.misses),
        ("pubsub_channels", channels),
        ("pubsub_patterns", patterns),
        ("tracking_total_keys", tracked_keys),
        ("tracking_total_items", tracked_items),
        ("tracking_total_prefixes", tracked_prefixes),
        ("latest_fork_usec", 0),
        ("total_forks", 0),
        ("total_error_replies", counts.errors),
        ("acl_access_denied_auth", denied[0]),
        ("acl_access_denied_cmd", denied[1]),
        ("acl_access_denied_key", denied[2]),
        ("acl_access_denied_channel", denied[3]),
    ] {
        line(text, format_args!("{name}:{number}"));
    }
    Ok(())
}

fn replication(context: &mut Context<'_>, text: &mut String) -> Done {
    line(text, format_args!("role:master"));
    line(text, format_args!("connected_slaves:0"));
    line(text, format_args!("master_failover_state:no-failover"));
    line(text, format_args!("master_replid:{}", context.state.options.run_id));
    line(text, format_args!("master_replid2:{}", "0".repeat(40)));
    line(text, format_args!("master_repl_offset:0"));
    line(text, format_args!("second_repl_offset:-1"));
    line(text, format_args!("repl_backlog_active:0"));
    line(text, format_args!("repl_backlog_size:1048576"));
    line(text, format_args!("repl_backlog_first_byte_offset:0"));
    line(text, format_args!("repl_backlog_histlen:0"));
    Ok(())
}

fn processor(context: &mut Context<'_>, text: &mut String) -> Done {
    let (system, user) = context.facts.processor_seconds;
    line(text, format_args!("used_cpu_sys:{system:.6}"));
    line(text, format_args!("used_cpu_user:{user:.6}"));
    line(text, format_args!("used_cpu_sys_children:0.000000"));
    line(text, format_args!("used_cpu_user_children:0.000000"));
    Ok(())
}

fn commands(context: &mut Context<'_>, text: &mut String) -> Done {
    let state = &context.state;
    for (place, calls) in state.counts.calls.iter().enumerate() {
        let Calls { executed, failed, rejected, microseconds, .. } = *calls;
        let is_shown = executed + rejected > 0;
        let Some(command) = state.names.at(place).filter(|_| is_shown) else { continue };
        let name = command.name;
        let each = microseconds as f64 / executed.max(1) as f64;
        line(
            text,
            format_args!(
                "cmdstat_{name}:calls={executed},usec={microseconds},usec_per_call={each:.2},\
                 rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
    Ok(())
}

fn errors(context: &mut Context<'_>, text: &mut String) -> Done {
    for (code, count) in &context.state.counts.codes {
        let code = String::from_utf8_lossy(code);
        line(text, format_args!("errorstat_{code}:count={count}"));
    }
    Ok(())
}

fn cluster(context: &mut Context<'_>, text: &mut String) -> Done {
    line(text, format_args!("cluster_enabled:{}", u8::from(context.is_of_cluster())));
    Ok(())
}

fn databases(context: &mut Context<'_>, text: &mut String) -> Done {
    let databases = if context.is_of_cluster() { 1 } else { context.state.options.databases };
    for database in 0..databases {
        let count = context.objects.objects(database)?;
        if count > 0 {
            line(text, format_args!("db{database}:keys={count},expires=0,avg_ttl=0"));
        }
    }
    Ok(())
}
