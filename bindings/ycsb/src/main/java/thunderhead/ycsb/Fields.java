package thunderhead.ycsb;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/** Between YCSB's iterators and bytes. */
final class Fields {
  private Fields() {}

  static Map<String, byte[]> bytes(Map<String, ByteIterator> values) {
    Map<String, byte[]> fields = new LinkedHashMap<>();
    values.forEach((name, value) -> fields.put(name, value.toArray()));
    return fields;
  }

  /** Gives what was asked for; all if nothing was said. */
  static void give(Map<String, byte[]> fields, Set<String> wanted, Map<String, ByteIterator> to) {
    fields.forEach(
        (name, value) -> {
          if (wanted == null || wanted.contains(name)) {
            to.put(name, new ByteArrayByteIterator(value));
          }
        });
  }
}
