//! The clients of `MONITOR`, which see the commands of all clients.

use super::commands::{ADMIN, Command, SKIP_MONITOR};
use super::parser::Arguments;
use super::server::{ClientId, State};
use super::slowlog::without_secrets;

impl State {
    /// Shows a command that was executed to the clients of `MONITOR`.
    pub(super) fn show(
        &self,
        id: ClientId,
        command: &'static Command,
        arguments: &Arguments<'_>,
        now_ms: u64,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        if self.monitors == 0 || command.has(SKIP_MONITOR | ADMIN) {
            return;
        }
        match without_secrets(command, arguments) {
            Some(shown) => self.show_script(id, &shown.arguments(), now_ms, messages),
            None => self.show_script(id, arguments, now_ms, messages),
        }
    }

    /// Shows a command that executes a script to the clients of `MONITOR`.
    pub(super) fn show_script(
        &self,
        id: ClientId,
        arguments: &Arguments<'_>,
        now_ms: u64,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        let Some(client) = self.clients.get(&id).filter(|_| self.monitors > 0) else { return };
        self.show_line(&client.monitor_line(&client.peer, arguments, now_ms), messages);
    }

    /// Shows a command that a script has executed to the clients of `MONITOR`.
    pub(super) fn show_call(
        &self,
        id: ClientId,
        command: &Command,
        arguments: &Arguments<'_>,
        now_ms: u64,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        if self.monitors == 0 || command.has(SKIP_MONITOR | ADMIN) {
            return;
        }
        let Some(client) = self.clients.get(&id) else { return };
        self.show_line(&client.monitor_line("lua", arguments, now_ms), messages);
    }

    fn show_line(&self, line: &[u8], messages: &mut Vec<(ClientId, Vec<u8>)>) {
        for monitor in self.clients.values().filter(|it| it.is_monitor) {
            messages.push((monitor.id, line.to_vec()));
        }
    }
}
