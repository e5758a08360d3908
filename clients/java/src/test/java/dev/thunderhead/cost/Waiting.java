package dev.thunderhead.cost;

import dev.thunderhead.Entry;
import dev.thunderhead.Table;
import dev.thunderhead.Thunderhead;
import java.util.ArrayList;
import java.util.List;

/** The client of Thunderhead whose calls wait. */
final class Waiting implements Cost.Rounds {
  private final Thunderhead db;
  private final Table table;
  private final byte[] value;
  private final List<Entry> entries = new ArrayList<>();

  Waiting(String url, String name, byte[] value) {
    this.db = Thunderhead.connect(url);
    this.table = db.table(name);
    this.value = value;
    for (byte[] key : Cost.KEYS) {
      entries.add(Entry.of(key, value));
    }
    table.putMany(entries);
  }

  @Override
  public void round(String work, int count, int width) throws Cost.Missing {
    byte[] key = Cost.KEYS[0];
    switch (work) {
      case "get" -> {
        for (int at = 0; at < count; at++) {
          if (table.get(key).isEmpty()) {
            throw new IllegalStateException("the object is not there");
          }
        }
      }
      case "put" -> {
        for (int at = 0; at < count; at++) {
          table.put(key, value);
        }
      }
      case "get_many" -> {
        List<byte[]> keys = List.of(Cost.KEYS);
        for (int at = 0; at < count; at += width) {
          table.getMany(keys);
        }
      }
      case "put_many" -> {
        for (int at = 0; at < count; at += width) {
          table.putMany(entries);
        }
      }
      default -> throw new Cost.Missing("calls that wait have no " + work);
    }
  }

  @Override
  public void close() {
    db.close();
  }
}
