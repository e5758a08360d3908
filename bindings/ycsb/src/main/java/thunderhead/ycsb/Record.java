package thunderhead.ycsb;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The fields of a YCSB record as one value.
 *
 * <pre>
 *  count u16, then for each field: bytes of the name u16, name, bytes of the value u32, value
 * </pre>
 */
public final class Record {
  private Record() {}

  /** The value with these fields. */
  public static byte[] encode(Map<String, byte[]> fields) {
    int length = 2;
    for (Map.Entry<String, byte[]> field : fields.entrySet()) {
      length += 2 + name(field.getKey()).length + 4 + field.getValue().length;
    }
    ByteBuffer bytes = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
    bytes.putShort((short) fields.size());
    for (Map.Entry<String, byte[]> field : fields.entrySet()) {
      byte[] name = name(field.getKey());
      bytes.putShort((short) name.length).put(name);
      bytes.putInt(field.getValue().length).put(field.getValue());
    }
    return bytes.array();
  }

  /** The fields in a value; null where it is no record. */
  public static Map<String, byte[]> decode(byte[] value) {
    ByteBuffer bytes = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
    if (bytes.remaining() < 2) {
      return null;
    }
    int count = Short.toUnsignedInt(bytes.getShort());
    Map<String, byte[]> fields = new LinkedHashMap<>();
    for (int at = 0; at < count; at++) {
      byte[] name = bytes.remaining() < 2 ? null : take(bytes, Short.toUnsignedInt(bytes.getShort()));
      byte[] field = name == null || bytes.remaining() < 4 ? null : take(bytes, bytes.getInt());
      if (field == null) {
        return null;
      }
      fields.put(new String(name, StandardCharsets.UTF_8), field);
    }
    return bytes.hasRemaining() ? null : fields;
  }

  private static byte[] take(ByteBuffer bytes, int length) {
    if (length < 0 || length > bytes.remaining()) {
      return null;
    }
    byte[] taken = new byte[length];
    bytes.get(taken);
    return taken;
  }

  private static byte[] name(String name) {
    byte[] bytes = name.getBytes(StandardCharsets.UTF_8);
    if (bytes.length > 0xffff) {
      throw new IllegalArgumentException("a field's name has at most 65535 bytes");
    }
    return bytes;
  }
}
