package thunderhead.ycsb;

import dev.thunderhead.Condition;
import dev.thunderhead.ConditionFailedException;
import dev.thunderhead.OutcomeUnknownException;
import dev.thunderhead.Table;
import dev.thunderhead.TableExistsException;
import dev.thunderhead.Thunderhead;
import dev.thunderhead.ThunderheadException;
import dev.thunderhead.TimedOutException;
import dev.thunderhead.Value;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import site.ycsb.ByteIterator;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * Thunderhead for YCSB. All threads share a client, which gives each of them connections of its
 * own.
 *
 * <p>A record is one object, whose value has all fields. An update of all fields is one write. An
 * update of some fields is a read and a conditional write, repeated until no other update came in
 * between. Tables have no order of keys, so YCSB's scans by key, which workload E needs, are refused.
 *
 * <p>Properties: {@code thunderhead.url} (thunderhead://127.0.0.1:7070), {@code thunderhead.span}
 * (shards of a table that is created, 1); {@code table} and {@code fieldcount} are YCSB's.
 */
public final class ThunderheadDB extends KeyValueDB {
  private static final Duration DEADLINE = Duration.ofSeconds(10);

  private static Thunderhead shared;

  /** The number of threads that use the shared client. */
  private static int users;

  private String name;
  private int fieldCount;
  private Table table;

  @Override
  public void init() throws DBException {
    name = getProperties().getProperty("table", "usertable");
    fieldCount = number("fieldcount", 10);
    int span = number("thunderhead.span", 1);
    String url = getProperties().getProperty("thunderhead.url", "thunderhead://127.0.0.1:7070");
    try {
      table = open(url, name, span);
    } catch (IllegalArgumentException | ThunderheadException error) {
      throw new DBException("no table at " + url + ": " + error.getMessage(), error);
    }
  }

  private static synchronized Table open(String url, String name, int span) {
    if (users == 0) {
      shared = Thunderhead.builder(url).deadline(DEADLINE).connect();
    }
    users++;
    try {
      return shared.createTable(name, span);
    } catch (TableExistsException exists) {
      return shared.table(name);
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
      // The exception below says so.
    }
    throw new DBException(property + " is " + text + "; it must be a number above 0");
  }

  @Override
  public void cleanup() {
    release();
  }

  private static synchronized void release() {
    users--;
    if (users == 0) {
      shared.close();
      shared = null;
    }
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    if (!table.equals(name)) {
      return Status.BAD_REQUEST;
    }
    try {
      Optional<Value> value = this.table.get(key);
      if (value.isEmpty()) {
        return Status.NOT_FOUND;
      }
      Map<String, byte[]> record = Record.decode(value.get().bytes());
      if (record == null) {
        return Status.UNEXPECTED_STATE;
      }
      Fields.give(record, fields, result);
      return Status.OK;
    } catch (ThunderheadException error) {
      return status(error);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    if (!table.equals(name)) {
      return Status.BAD_REQUEST;
    }
    try {
      this.table.put(key, Record.encode(Fields.bytes(values)));
      return Status.OK;
    } catch (ThunderheadException error) {
      return status(error);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    if (!table.equals(name)) {
      return Status.BAD_REQUEST;
    }
    try {
      return update(bytes(key), Fields.bytes(values));
    } catch (ThunderheadException error) {
      return status(error);
    }
  }

  private Status update(byte[] key, Map<String, byte[]> fields) {
    if (fields.size() >= fieldCount) {
      table.putIf(key, Record.encode(fields), Condition.present());
      return Status.OK;
    }
    while (true) {
      Optional<Value> value = table.get(key);
      if (value.isEmpty()) {
        return Status.NOT_FOUND;
      }
      Map<String, byte[]> record = Record.decode(value.get().bytes());
      if (record == null) {
        return Status.UNEXPECTED_STATE;
      }
      record.putAll(fields);
      Condition unchanged = Condition.versionIs(value.get().version());
      try {
        table.putIf(key, Record.encode(record), unchanged);
        return Status.OK;
      } catch (ConditionFailedException changed) {
        // Another client has made progress.
      }
    }
  }

  @Override
  public Status delete(String table, String key) {
    if (!table.equals(name)) {
      return Status.BAD_REQUEST;
    }
    try {
      return this.table.delete(key).isPresent() ? Status.OK : Status.NOT_FOUND;
    } catch (ThunderheadException error) {
      return status(error);
    }
  }

  private static Status status(ThunderheadException error) {
    if (error instanceof OutcomeUnknownException) {
      return Status.UNEXPECTED_STATE;
    }
    if (error instanceof ConditionFailedException) {
      return Status.NOT_FOUND;
    }
    if (error instanceof TimedOutException) {
      return Status.SERVICE_UNAVAILABLE;
    }
    return Status.ERROR;
  }
}
