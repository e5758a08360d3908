/**
 * The client of Thunderhead, a durable key-value store in memory that does each update exactly
 * once.
 *
 * <p>{@link dev.thunderhead.Thunderhead#connect} returns a client, {@link
 * dev.thunderhead.Thunderhead#table} a table, and {@link dev.thunderhead.Table#async()} the same
 * table with futures. Errors are of two kinds: after a {@link dev.thunderhead.NotDoneException}
 * nothing was changed, after an {@link dev.thunderhead.OutcomeUnknownException} a change may have
 * been done.
 */
package dev.thunderhead;
