package thunderhead.client;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import thunderhead.wire.Wire;

/**
 * A TCP connection to a server, for one thread: one request at a time. After any exception it is of
 * no use: the answer to a former request could come for a later one (its number would tell, but
 * nothing is won by waiting for it).
 */
final class Connection implements Closeable {
  private static final int CONNECT_MILLIS = 1000;

  private final Socket socket = new Socket();
  private final InputStream in;
  private final OutputStream out;
  private final Wire.Greeting server;
  private final byte[] buffer = new byte[64 << 10];
  private int from;
  private int until;
  private long count;

  /** Connects and greets, as a client of this cluster; 0: of any. */
  Connection(InetSocketAddress address, int patienceMillis, long cluster) throws IOException {
    try {
      socket.setTcpNoDelay(true);
      socket.connect(address, CONNECT_MILLIS);
      socket.setSoTimeout(patienceMillis);
      in = socket.getInputStream();
      out = socket.getOutputStream();
      out.write(Wire.greeting(Wire.MESSAGE_BYTES_MAX, cluster));
      int head = readHead();
      if (head >>> 24 != Wire.KIND_GREETING) {
        throw new Wire.Broken("the first frame is no greeting");
      }
      server = Wire.understandGreeting(payload(head, Wire.GREETING_BYTES_MAX), cluster);
    } catch (IOException | RuntimeException error) {
      close();
      throw error;
    }
  }

  /** The cluster that the server belongs to; 0 if it did not know when it was greeted. */
  long cluster() {
    return server.cluster;
  }

  /** Whether the server takes a request with a body of so many bytes. */
  boolean takes(int bodyBytes) {
    return Wire.MESSAGE_HEAD_BYTES + bodyBytes <= server.messageBytesMax;
  }

  /** Asks, and waits for the answer. */
  Wire.Reply call(Wire.Opcode opcode, byte[] body, int timeoutMicros) throws IOException {
    long id = ++count;
    out.write(Wire.request(id, opcode, timeoutMicros, body));
    while (true) {
      int head = readHead();
      int kind = head >>> 24;
      byte[] payload = payload(head, Wire.MESSAGE_BYTES_MAX);
      if (kind == Wire.KIND_MESSAGE) {
        Wire.Reply reply = Wire.reply(id, payload);
        if (reply != null) {
          return reply;
        }
      } else if (kind < Wire.KIND_MAY_BE_SKIPPED) {
        throw new Wire.Broken("the server sends a frame of kind " + kind);
      }
    }
  }

  private int readHead() throws IOException {
    while (until - from < Wire.FRAME_HEAD_BYTES) {
      fill();
    }
    int head = 0;
    for (int at = Wire.FRAME_HEAD_BYTES - 1; at >= 0; at--) {
      head = head << 8 | buffer[from + at] & 0xff;
    }
    from += Wire.FRAME_HEAD_BYTES;
    return head;
  }

  private byte[] payload(int head, int most) throws IOException {
    int bytes = head & 0xff_ffff;
    if (bytes > most) {
      throw new Wire.Broken("the server sends a frame of " + bytes + " bytes");
    }
    byte[] payload = new byte[bytes];
    int have = Math.min(bytes, until - from);
    System.arraycopy(buffer, from, payload, 0, have);
    from += have;
    while (have < bytes) {
      int more = in.read(payload, have, bytes - have);
      if (more < 0) {
        throw new EOFException("the server closed the connection");
      }
      have += more;
    }
    return payload;
  }

  private void fill() throws IOException {
    if (from > 0) {
      System.arraycopy(buffer, from, buffer, 0, until - from);
      until -= from;
      from = 0;
    }
    int more = in.read(buffer, until, buffer.length - until);
    if (more < 0) {
      throw new EOFException("the server closed the connection");
    }
    until += more;
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException ignored) {
      // It is of no use, closed or not.
    }
  }
}
