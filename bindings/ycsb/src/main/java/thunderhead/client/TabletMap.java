package thunderhead.client;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.TreeMap;
import org.codehaus.jackson.JsonNode;
import org.codehaus.jackson.map.ObjectMapper;
import thunderhead.wire.Wire;

/** Where the tablets of one table are, as a coordinator said. */
final class TabletMap {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Which map this is: newer ones have higher numbers. */
  final long version;

  /** The table's id. */
  final long table;

  /** By last hash. */
  private final TreeMap<Long, Tablet> tablets = new TreeMap<>(Long::compareUnsigned);

  private static final class Tablet {
    final long first;
    final InetSocketAddress address;

    Tablet(long first, InetSocketAddress address) {
      this.first = first;
      this.address = address;
    }
  }

  private TabletMap(long version, long table) {
    this.version = version;
    this.table = table;
  }

  /** The map of a table in a coordinator's answer. */
  static TabletMap of(byte[] body, String name) throws IOException {
    JsonNode answer = parse(body);
    for (JsonNode table : answer.path("tables")) {
      if (!name.equals(table.path("name").getTextValue())) {
        continue;
      }
      TabletMap map = new TabletMap(number(answer, "version"), number(table, "id"));
      for (JsonNode tablet : table.path("tablets")) {
        String address = tablet.path("address").getTextValue();
        long first = number(tablet, "first");
        long last = number(tablet, "last");
        // A tablet that is being recovered is nowhere.
        if (address != null) {
          map.tablets.put(last, new Tablet(first, address(address)));
        }
      }
      return map;
    }
    throw new Wire.Broken("the coordinator's map lacks the table " + name);
  }

  /** Where a key belongs; null if nobody has it at the moment. */
  InetSocketAddress find(long hash) {
    Map.Entry<Long, Tablet> found = tablets.ceilingEntry(hash);
    if (found == null || Long.compareUnsigned(found.getValue().first, hash) > 0) {
      return null;
    }
    return found.getValue().address;
  }

  /** What a coordinator says. */
  static JsonNode parse(byte[] body) throws IOException {
    JsonNode node = JSON.readTree(body);
    if (node == null || !node.isObject()) {
      throw new Wire.Broken("the coordinator's answer is no object");
    }
    return node;
  }

  /** A number of 64 bits without a sign. */
  static long number(JsonNode object, String field) throws IOException {
    JsonNode number = object.path(field);
    if (!number.isIntegralNumber()
        || number.getBigIntegerValue().signum() < 0
        || number.getBigIntegerValue().bitLength() > 64) {
      throw new Wire.Broken("the coordinator's answer lacks the number " + field);
    }
    return number.getBigIntegerValue().longValue();
  }

  /** HOST:PORT, with brackets around an IPv6 address. */
  static InetSocketAddress address(String text) throws IOException {
    int colon = text.lastIndexOf(':');
    try {
      String host = text.substring(0, Math.max(colon, 0)).replaceAll("^\\[|]$", "");
      int port = Integer.parseInt(text.substring(colon + 1));
      if (!host.isEmpty()) {
        return new InetSocketAddress(host, port);
      }
    } catch (IllegalArgumentException ignored) {
      // Told below.
    }
    throw new Wire.Broken(text + " is no address: HOST:PORT");
  }
}
