package thunderhead.ycsb;

import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import site.ycsb.ByteIterator;
import site.ycsb.DBException;
import site.ycsb.Status;
import thunderhead.client.Client;
import thunderhead.client.Client.Outcome;
import thunderhead.wire.Wire.Condition;

/**
 * Thunderhead for YCSB. Each thread has a client, and so connections, of its own.
 *
 * <p>A record is one object, whose value has all fields. An update of all fields is one write; one
 * of some is a read and a write on the condition that nobody has written in between, again until it
 * holds. Tables have no order of keys, so nothing answers the scans of workload E.
 *
 * <p>Properties: {@code thunderhead.coordinators} (HOST:PORT, with commas between; 127.0.0.1:7070),
 * {@code thunderhead.span} (shards of a table that is made, 1), {@code thunderhead.deadline_ms} (of
 * an operation with everything in its way, 10000); {@code table} and {@code fieldcount} are YCSB's.
 */
public final class ThunderheadDB extends KeyValueDB {
  private String table;
  private int fieldCount;
  private Client client;

  @Override
  public void init() throws DBException {
    String coordinators = getProperties().getProperty("thunderhead.coordinators", "127.0.0.1:7070");
    table = getProperties().getProperty("table", "usertable");
    fieldCount = number("fieldcount", 10);
    try {
      client =
          new Client(
              Arrays.asList(coordinators.split(",")),
              table,
              number("thunderhead.span", 1),
              number("thunderhead.deadline_ms", 10_000));
    } catch (IOException error) {
      throw new DBException("no cluster at " + coordinators + ": " + error.getMessage(), error);
    }
  }

  private int number(String property, int otherwise) throws DBException {
    String text = getProperties().getProperty(property, String.valueOf(otherwise));
    try {
      int number = Integer.parseInt(text);
      if (number > 0) {
        return number;
      }
    } catch (NumberFormatException ignored) {
      // Told below.
    }
    throw new DBException(property + " is " + text + "; it must be a number above 0");
  }

  @Override
  public void cleanup() {
    client.close();
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    if (!table.equals(this.table)) {
      return Status.BAD_REQUEST;
    }
    Outcome outcome = client.read(bytes(key));
    if (outcome.status != thunderhead.wire.Status.OK) {
      return status(outcome);
    }
    Map<String, byte[]> record = Record.decode(outcome.value);
    if (record == null) {
      return Status.UNEXPECTED_STATE;
    }
    Fields.give(record, fields, result);
    return Status.OK;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    if (!table.equals(this.table)) {
      return Status.BAD_REQUEST;
    }
    byte[] value = Record.encode(Fields.bytes(values));
    return status(client.write(bytes(key), Condition.ALWAYS, 0, value));
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    if (!table.equals(this.table)) {
      return Status.BAD_REQUEST;
    }
    Map<String, byte[]> fields = Fields.bytes(values);
    byte[] name = bytes(key);
    if (fields.size() >= fieldCount) {
      return status(client.write(name, Condition.PRESENT, 0, Record.encode(fields)));
    }
    while (true) {
      Outcome read = client.read(name);
      if (read.status != thunderhead.wire.Status.OK) {
        return status(read);
      }
      Map<String, byte[]> record = Record.decode(read.value);
      if (record == null) {
        return Status.UNEXPECTED_STATE;
      }
      record.putAll(fields);
      Outcome written =
          client.write(name, Condition.VERSION_IS, read.version, Record.encode(record));
      // A failed condition means that another client has made progress.
      if (written.status != thunderhead.wire.Status.CONDITION_FAILED || written.isUnknown) {
        return status(written);
      }
    }
  }

  @Override
  public Status delete(String table, String key) {
    if (!table.equals(this.table)) {
      return Status.BAD_REQUEST;
    }
    return status(client.delete(bytes(key), Condition.ALWAYS, 0));
  }

  private static Status status(Outcome outcome) {
    if (outcome.isUnknown) {
      return Status.UNEXPECTED_STATE;
    }
    switch (outcome.status) {
      case OK:
        return Status.OK;
      case NOT_FOUND:
      case CONDITION_FAILED:
        return Status.NOT_FOUND;
      case KEY_EMPTY:
      case KEY_TOO_LONG:
      case VALUE_TOO_LONG:
        return Status.BAD_REQUEST;
      case BUSY:
      case NO_SPACE:
      case MOVED:
        return Status.SERVICE_UNAVAILABLE;
      default:
        return Status.ERROR;
    }
  }
}
