package thunderhead.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import net.openhft.hashing.LongHashFunction;

/**
 * The bytes that go over a connection, as docs/protocol.md has them. Nothing here reads or writes a
 * socket; lengths that came from outside are looked at before they are used.
 */
public final class Wire {
  /** Bytes of a frame's head. */
  public static final int FRAME_HEAD_BYTES = 4;

  /** Bytes before the body of a message. */
  public static final int MESSAGE_HEAD_BYTES = 16;

  /** Bytes of a greeting. */
  public static final int GREETING_BYTES = 64;

  /** Where a greeting names the cluster. */
  private static final int CLUSTER_AT = 56;

  /** A greeting may be longer than ours, up to this. */
  public static final int GREETING_BYTES_MAX = 1024;

  /** Bytes of an object head. */
  public static final int OBJECT_HEAD_BYTES = 24;

  /** Bytes of an identity. */
  public static final int IDENTITY_BYTES = 32;

  /** The longest message that we take: a value of 1 MB and what is around it, with room. */
  public static final int MESSAGE_BYTES_MAX = 4 << 20;

  /** A frame that is a message. */
  public static final int KIND_MESSAGE = 0;

  /** A frame that is the greeting. */
  public static final int KIND_GREETING = 1;

  /** Frames of unknown kinds from here on are passed over. */
  public static final int KIND_MAY_BE_SKIPPED = 128;

  /** The only version of the protocol that there is. */
  public static final int VERSION = 1;

  private static final byte[] MAGIC = "THUNDER\n".getBytes(StandardCharsets.US_ASCII);
  private static final int IS_REPLY = 1 << 15;
  private static final LongHashFunction XXH3 = LongHashFunction.xx3();

  private Wire() {}

  /** What is asked; docs/protocol.md lists all. */
  public enum Opcode {
    READ(32),
    WRITE(33),
    DELETE(34),
    MAP(66),
    CREATE_TABLE(67),
    OPEN_LEASE(71),
    RENEW_LEASE(72),
    CLOSE_LEASE(73);

    final int code;

    Opcode(int code) {
      this.code = code;
    }
  }

  /** When an update goes ahead. */
  public enum Condition {
    ALWAYS(0),
    ABSENT(1),
    PRESENT(2),
    VERSION_IS(3);

    final int code;

    Condition(int code) {
      this.code = code;
    }
  }

  /** A reply: a status, what it adds to that, and a body. */
  public static final class Reply {
    public final int status;
    public final long hint;
    public final byte[] body;

    Reply(int status, long hint, byte[] body) {
      this.status = status;
      this.hint = hint;
      this.body = body;
    }
  }

  /** The hash by which keys belong to tablets; as a number it has no sign. */
  public static long hash(byte[] key) {
    return XXH3.hashBytes(key);
  }

  /** A buffer of the protocol's byte order. */
  public static ByteBuffer buffer(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Bytes that came, to be read in the protocol's order. */
  public static ByteBuffer view(byte[] bytes) {
    return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** The head of a frame. */
  public static int frameHead(int kind, int payloadBytes) {
    return kind << 24 | payloadBytes;
  }

  /** What a server says of itself. */
  public static final class Greeting {
    /** The longest message that it takes. */
    public final int messageBytesMax;

    /** The cluster that it belongs to; 0 if it does not know yet. */
    public final long cluster;

    private Greeting(int messageBytesMax, long cluster) {
      this.messageBytesMax = messageBytesMax;
      this.cluster = cluster;
    }
  }

  /**
   * A frame with the greeting of a client that has no features and wants no shared memory. It belongs
   * to this cluster; 0: it does not know yet to which.
   */
  public static byte[] greeting(int messageBytesMax, long cluster) {
    ByteBuffer bytes = buffer(FRAME_HEAD_BYTES + GREETING_BYTES);
    bytes.putInt(frameHead(KIND_GREETING, GREETING_BYTES)).put(MAGIC);
    bytes.putShort((short) VERSION).putShort((short) VERSION).putInt(messageBytesMax);
    bytes.putLong(FRAME_HEAD_BYTES + CLUSTER_AT, cluster);
    return bytes.array();
  }

  /** What the sender of a greeting says, to a client of a cluster; 0 if that is not known yet. */
  public static Greeting understandGreeting(byte[] payload, long cluster) throws Broken {
    if (payload.length < GREETING_BYTES) {
      throw new Broken("the greeting has " + payload.length + " bytes");
    }
    for (int at = 0; at < MAGIC.length; at++) {
      if (payload[at] != MAGIC[at]) {
        throw new Broken("this is no server of Thunderhead");
      }
    }
    ByteBuffer bytes = view(payload);
    int oldest = Short.toUnsignedInt(bytes.getShort(8));
    int newest = Short.toUnsignedInt(bytes.getShort(10));
    if (oldest > VERSION || newest < VERSION) {
      throw new Broken("the server speaks versions " + oldest + " to " + newest);
    }
    long most = Integer.toUnsignedLong(bytes.getInt(12));
    long theirs = bytes.getLong(CLUSTER_AT);
    if (cluster != 0 && theirs != 0 && theirs != cluster) {
      throw new Broken(
          "the server belongs to cluster "
              + Long.toUnsignedString(theirs)
              + ", not to cluster "
              + Long.toUnsignedString(cluster));
    }
    return new Greeting((int) Math.min(most, (1 << 24) - 1), theirs);
  }

  /** A frame with a request. */
  public static byte[] request(long id, Opcode opcode, int timeoutMicros, byte[] body) {
    int payload = MESSAGE_HEAD_BYTES + body.length;
    ByteBuffer bytes = buffer(FRAME_HEAD_BYTES + payload);
    bytes.putInt(frameHead(KIND_MESSAGE, payload)).putLong(id).putShort((short) opcode.code);
    bytes.putShort((short) 0).putInt(timeoutMicros).put(body);
    return bytes.array();
  }

  /** The reply in a message; null if it answers another request. */
  public static Reply reply(long id, byte[] message) throws Broken {
    if (message.length < MESSAGE_HEAD_BYTES) {
      throw new Broken("a message has " + message.length + " bytes");
    }
    ByteBuffer bytes = view(message);
    long found = bytes.getLong(0);
    int status = Short.toUnsignedInt(bytes.getShort(8));
    int flags = Short.toUnsignedInt(bytes.getShort(10));
    if ((flags & IS_REPLY) == 0) {
      throw new Broken("the server asks something");
    }
    if (found != id) {
      return null;
    }
    byte[] body = new byte[message.length - MESSAGE_HEAD_BYTES];
    System.arraycopy(message, MESSAGE_HEAD_BYTES, body, 0, body.length);
    return new Reply(status, Integer.toUnsignedLong(bytes.getInt(12)), body);
  }

  /** An object head, without the key. */
  public static ByteBuffer putObjectHead(
      ByteBuffer bytes, long table, int keyBytes, Condition condition, long version) {
    bytes.putLong(table).putLong(version).putInt(keyBytes);
    return bytes.put((byte) condition.code).put((byte) 0).putShort((short) 0);
  }

  /** An identity, in a message whose shard was chosen by a map of this version. */
  public static ByteBuffer putIdentity(
      ByteBuffer bytes, long lease, long sequence, long firstUnacknowledged, long mapVersion) {
    return bytes.putLong(lease).putLong(sequence).putLong(firstUnacknowledged).putLong(mapVersion);
  }

  /** The body that reads an object. */
  public static byte[] read(long table, byte[] key) {
    ByteBuffer bytes = buffer(OBJECT_HEAD_BYTES + key.length);
    return putObjectHead(bytes, table, key.length, Condition.ALWAYS, 0).put(key).array();
  }

  /** The body that writes an object, or deletes it where the value is empty: see the opcode. */
  public static byte[] update(
      long lease,
      long sequence,
      long mapVersion,
      long table,
      byte[] key,
      Condition condition,
      long version,
      byte[] value) {
    int length = IDENTITY_BYTES + OBJECT_HEAD_BYTES + key.length + value.length;
    ByteBuffer bytes = buffer(length);
    // One update at a time: all before it have been answered.
    putIdentity(bytes, lease, sequence, sequence, mapVersion);
    putObjectHead(bytes, table, key.length, condition, version);
    return bytes.put(key).put(value).array();
  }

  /** What came over a connection makes no sense; the connection is of no use any more. */
  public static final class Broken extends java.io.IOException {
    private static final long serialVersionUID = 1;

    public Broken(String what) {
      super(what);
    }
  }
}
