package thunderhead.ycsb;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;

/**
 * A store of records by key that keeps no order of keys. YCSB's scans ask for a range in that order:
 * such a store has no answer to them, and says so. Only workload E has scans.
 */
abstract class KeyValueDB extends DB {
  @Override
  public final Status scan(
      String table,
      String startkey,
      int recordcount,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
