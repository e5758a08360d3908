package thunderhead.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class TabletMapTest {
  private static TabletMap map(String json) throws IOException {
    return TabletMap.of(json.getBytes(StandardCharsets.UTF_8), "x");
  }

  /** The text is the one of the test in crates/wire. */
  @Test
  void aMapIsUnderstood() throws Exception {
    TabletMap map =
        map(
            "{\"version\":3,\"tables\":[{\"id\":7,\"name\":\"x\",\"tablets\":[{\"first\":0,"
                + "\"last\":18446744073709551615,\"master\":2,\"address\":\"127.0.0.1:7071\"}]}]}");
    assertEquals(7, map.table);
    assertEquals(3, map.version);
    for (long hash : new long[] {0, Long.MAX_VALUE, Long.MIN_VALUE, -1}) {
      assertEquals(new InetSocketAddress("127.0.0.1", 7071), map.find(hash));
    }
  }

  @Test
  void aKeyBelongsWhereItsTabletIs() throws Exception {
    TabletMap map =
        map(
            "{\"version\":1,\"tables\":[{\"name\":\"y\"},{\"id\":1,\"name\":\"x\",\"tablets\":["
                + "{\"first\":0,\"last\":9,\"address\":\"10.0.0.1:1\"},"
                + "{\"first\":10,\"last\":19,\"address\":null},"
                + "{\"first\":20,\"last\":18446744073709551615,\"address\":\"[::1]:2\"}]}]}");
    assertEquals(1, map.find(9).getPort());
    assertNull(map.find(15), "it is being recovered");
    assertEquals(2, map.find(-1).getPort());
    assertEquals("[::1]:2", "[::1]:" + map.find(20).getPort());
  }

  @Test
  void whatMakesNoSenseIsRefused() {
    for (String json :
        new String[] {
          "",
          "[]",
          "nonsense",
          "{}",
          "{\"version\":1,\"tables\":[{\"id\":-1,\"name\":\"x\"}]}",
          "{\"version\":1,\"tables\":[{\"id\":18446744073709551616,\"name\":\"x\"}]}",
          "{\"version\":1,\"tables\":[{\"id\":1,\"name\":\"x\",\"tablets\":[{\"first\":0}]}]}",
          "{\"version\":1,\"tables\":[{\"id\":1,\"name\":\"x\",\"tablets\":"
              + "[{\"first\":0,\"last\":1,\"address\":\"nowhere\"}]}]}",
        }) {
      assertThrows(IOException.class, () -> map(json), json);
    }
  }
}
