package thunderhead.ycsb;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

class RecordTest {
  @Test
  void whatIsEncodedIsDecodedAndNothingElse() {
    Map<String, byte[]> fields = new LinkedHashMap<>();
    fields.put("field0", new byte[] {1, 2, 3});
    fields.put("", new byte[0]);
    fields.put("ä", new byte[300]);
    byte[] value = Record.encode(fields);
    Map<String, byte[]> decoded = Record.decode(value);
    assertNotNull(decoded);
    assertEquals(fields.keySet(), decoded.keySet());
    fields.forEach((name, field) -> assertArrayEquals(field, decoded.get(name)));
    for (int length = 0; length < value.length; length++) {
      assertNull(Record.decode(Arrays.copyOf(value, length)), "cut to " + length);
    }
    assertNull(Record.decode(Arrays.copyOf(value, value.length + 1)));
    byte[] lying = value.clone();
    Arrays.fill(lying, 10, 14, (byte) 0xff);
    assertNull(Record.decode(lying));
  }
}
