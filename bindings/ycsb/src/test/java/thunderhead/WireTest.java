package thunderhead;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import thunderhead.wire.Status;
import thunderhead.wire.Wire;
import thunderhead.wire.Wire.Condition;

/** The golden bytes are those of the tests in crates/wire. */
class WireTest {
  private static byte[] bytes(int... bytes) {
    byte[] array = new byte[bytes.length];
    for (int at = 0; at < bytes.length; at++) {
      array[at] = (byte) bytes[at];
    }
    return array;
  }

  private static byte[] text(String text) {
    return text.getBytes(StandardCharsets.ISO_8859_1);
  }

  private static byte[] concat(byte[]... parts) {
    int length = Arrays.stream(parts).mapToInt(part -> part.length).sum();
    ByteBuffer all = ByteBuffer.allocate(length);
    Arrays.stream(parts).forEach(all::put);
    return all.array();
  }

  @Test
  void aGreetingHasTheseBytes() throws Exception {
    byte[] golden =
        concat(
            bytes(64, 0, 0, 1),
            text("THUNDER\n\u0001\0\u0001\0\u0056\u0034\u0012\0"),
            new byte[40],
            bytes(8, 7, 6, 5, 4, 3, 2, 1));
    long cluster = 0x0102_0304_0506_0708L;
    assertArrayEquals(golden, Wire.greeting(0x0012_3456, cluster));
    byte[] payload = Arrays.copyOfRange(golden, 4, golden.length);
    for (long own : new long[] {0, cluster}) {
      Wire.Greeting greeting = Wire.understandGreeting(concat(payload, new byte[9]), own);
      assertEquals(0x0012_3456, greeting.messageBytesMax);
      assertEquals(cluster, greeting.cluster);
    }
    assertThrows(Wire.Broken.class, () -> Wire.understandGreeting(payload, cluster + 1));
    byte[] boastful = payload.clone();
    Arrays.fill(boastful, 12, 16, (byte) 0xff);
    assertEquals((1 << 24) - 1, Wire.understandGreeting(boastful, 0).messageBytesMax);
  }

  @Test
  void whatIsNoGreetingOrOfOtherVersionsIsRefused() {
    byte[] frame = Wire.greeting(1000, 0);
    byte[] payload = Arrays.copyOfRange(frame, 4, frame.length);
    for (int at : new int[] {0, 7}) {
      byte[] other = payload.clone();
      other[at] ^= 1;
      assertThrows(Wire.Broken.class, () -> Wire.understandGreeting(other, 0));
    }
    for (int[] versions : new int[][] {{2, 9}, {0, 0}, {9, 2}}) {
      byte[] other = payload.clone();
      other[8] = (byte) versions[0];
      other[10] = (byte) versions[1];
      assertThrows(Wire.Broken.class, () -> Wire.understandGreeting(other, 0));
    }
    byte[] cut = Arrays.copyOf(payload, 63);
    assertThrows(Wire.Broken.class, () -> Wire.understandGreeting(cut, 0));
  }

  @Test
  void messagesHaveTheseBytes() throws Exception {
    byte[] request = Wire.request(0x0102_0304_0506_0708L, Wire.Opcode.READ, 0x3344_5566, text("b"));
    byte[] head = bytes(8, 7, 6, 5, 4, 3, 2, 1, 32, 0, 0, 0, 0x66, 0x55, 0x44, 0x33);
    assertArrayEquals(concat(bytes(17, 0, 0, 0), head, text("b")), request);
    byte[] busy = bytes(7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x80, 0xe8, 3, 0, 0);
    Wire.Reply reply = Wire.reply(7, concat(busy, text("body")));
    assertEquals(Status.BUSY, Status.of(reply.status));
    assertEquals(1000, reply.hint);
    assertArrayEquals(text("body"), reply.body);
    assertNull(Wire.reply(8, busy));
    assertThrows(Wire.Broken.class, () -> Wire.reply(7, Arrays.copyOf(busy, 15)));
    assertThrows(Wire.Broken.class, () -> Wire.reply(0, head));
  }

  @Test
  void bodiesHaveTheseBytes() {
    ByteBuffer object = Wire.buffer(Wire.OBJECT_HEAD_BYTES);
    Wire.putObjectHead(object, 0x0102, 3, Condition.VERSION_IS, 9);
    byte[] golden = new byte[24];
    golden[0] = 2;
    golden[1] = 1;
    golden[8] = 9;
    golden[16] = 3;
    golden[20] = 3;
    assertArrayEquals(golden, object.array());
    ByteBuffer identity = Wire.buffer(Wire.IDENTITY_BYTES);
    Wire.putIdentity(identity, 5, 6, 4, 7);
    byte[] words = new byte[32];
    words[0] = 5;
    words[8] = 6;
    words[16] = 4;
    words[24] = 7;
    assertArrayEquals(words, identity.array());
    byte[] update =
        Wire.update(5, 6, 7, 0x0102, text("key"), Condition.VERSION_IS, 9, text("value"));
    words[16] = 6;
    assertArrayEquals(concat(words, golden, text("keyvalue")), update);
    golden[8] = 0;
    golden[20] = 0;
    assertArrayEquals(concat(golden, text("key")), Wire.read(0x0102, text("key")));
  }

  @Test
  void theHashOfAKeyIsTheOneEveryClientComputes() {
    assertEquals(0x2d06_8005_38d3_94c2L, Wire.hash(text("")));
    assertEquals(0xe6c6_32b6_1e96_4e1fL, Wire.hash(text("a")));
    assertEquals(0x78af_5f94_892f_3950L, Wire.hash(text("abc")));
  }

  @Test
  void statusesSayWhatToDoNext() {
    assertEquals(Status.Next.REFRESH, Status.of(5).next);
    assertEquals(Status.Next.WAIT, Status.of(8).next);
    for (int code : new int[] {2, 60_000, -1}) {
      assertEquals(Status.OTHER, Status.of(code));
    }
  }
}
