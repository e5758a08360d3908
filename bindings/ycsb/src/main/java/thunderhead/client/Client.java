package thunderhead.client;

import java.io.Closeable;
import java.io.IOException;
import java.math.BigInteger;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import org.codehaus.jackson.map.ObjectMapper;
import thunderhead.wire.Status;
import thunderhead.wire.Wire;
import thunderhead.wire.Wire.Condition;
import thunderhead.wire.Wire.Opcode;

/**
 * A client of one table, for one thread. It blocks, and has a connection of its own to each server
 * that it needs.
 *
 * <p>Every update is done once, however often it is sent: it has a sequence under a lease that this
 * client keeps alive, and keeps both in every attempt. Where a lease is over before an update was
 * tried a second time, it goes out under the next one; else nobody knows whether it was done, and
 * the {@link Outcome} says so. Nothing is tried beyond the deadline.
 */
public final class Client implements Closeable {
  /** How long to wait for one answer. A server that lives answers much sooner, or is busy. */
  private static final int PATIENCE_MILLIS = 1000;

  /** How long for a coordinator's, which may have to write it down first. */
  private static final int COORDINATOR_PATIENCE_MILLIS = 5000;

  private static final long WAIT_MIN_NANOS = 1_000_000;
  private static final long WAIT_MAX_NANOS = 500_000_000;
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final byte[] NOTHING = new byte[0];

  private final List<InetSocketAddress> coordinators = new ArrayList<>();
  private final String name;
  private final long deadlineNanos;
  private final Map<InetSocketAddress, Connection> connections = new HashMap<>();
  private Connection coordinator;

  /** The cluster of the first server that named one; of no other from then on. */
  private long cluster;

  private int leader;
  private TabletMap map;
  private long lease;
  private long leaseNanos;
  private long heardAt;
  private long sequence;

  /** What an operation came to. */
  public static final class Outcome {
    /** OK, or why not; OTHER where a server says something that is not known here. */
    public final Status status;

    /** Nobody knows whether the update was done. */
    public final boolean isUnknown;

    /** The object's version, also where a condition failed. */
    public final long version;

    /** What was read. */
    public final byte[] value;

    private Outcome(Status status, boolean isUnknown, long version, byte[] value) {
      this.status = status;
      this.isUnknown = isUnknown;
      this.version = version;
      this.value = value;
    }

    static Outcome failed(Status status, boolean isUnknown) {
      return new Outcome(status, isUnknown, 0, NOTHING);
    }
  }

  /** Connects to a cluster, and makes the table over so many shards if it is not there. */
  public Client(List<String> coordinators, String table, int span, long deadlineMillis)
      throws IOException {
    for (String address : coordinators) {
      this.coordinators.add(TabletMap.address(address.trim()));
    }
    if (this.coordinators.isEmpty()) {
      throw new IOException("name at least one coordinator: HOST:PORT");
    }
    this.name = table;
    this.deadlineNanos = deadlineMillis * 1_000_000;
    Attempts attempts = new Attempts();
    if (!learn(attempts)) {
      Map<String, Object> body = new HashMap<>();
      body.put("name", table);
      body.put("server_span", span);
      Wire.Reply made = ask(Opcode.CREATE_TABLE, body, attempts);
      Status status = Status.of(made.status);
      if (status != Status.OK && status != Status.TABLE_EXISTS || !learn(attempts)) {
        throw new IOException("the table " + table + " cannot be made: " + status);
      }
    }
  }

  /** Reads an object. */
  public Outcome read(byte[] key) {
    byte[] body = Wire.read(map.table, key);
    return operation(Opcode.READ, key, (lease, sequence) -> body);
  }

  /** Writes an object, if the condition holds. */
  public Outcome write(byte[] key, Condition condition, long version, byte[] value) {
    return operation(
        Opcode.WRITE,
        key,
        (lease, sequence) ->
            Wire.update(lease, sequence, map.version, map.table, key, condition, version, value));
  }

  /** Deletes an object, if the condition holds; one that is not there is done already. */
  public Outcome delete(byte[] key, Condition condition, long version) {
    return operation(
        Opcode.DELETE,
        key,
        (lease, sequence) ->
            Wire.update(lease, sequence, map.version, map.table, key, condition, version, NOTHING));
  }

  private interface Body {
    byte[] of(long lease, long sequence);
  }

  /** The history of one operation's attempts. */
  private final class Attempts {
    final long deadline = System.nanoTime() + deadlineNanos;
    int failures;
    boolean mayBeDone;

    /** Waits as long as was asked, and about twice as long with every failure; false: too late. */
    boolean waitFor(long micros) {
      long most = Math.min(WAIT_MIN_NANOS << Math.min(failures, 16), WAIT_MAX_NANOS);
      failures++;
      long nanos = micros * 1000 + ThreadLocalRandom.current().nextLong(most) + 1;
      if (deadline - System.nanoTime() <= nanos) {
        return false;
      }
      try {
        Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        return false;
      }
      return true;
    }
  }

  private Outcome operation(Opcode opcode, byte[] key, Body body) {
    Attempts attempts = new Attempts();
    boolean isUpdate = opcode != Opcode.READ;
    long hash = Wire.hash(key);
    int sent = 0;
    long number = 0;
    long under = 0;
    boolean isNumbered = false;
    Status obstacle = Status.BUSY;
    while (true) {
      InetSocketAddress to = null;
      try {
        if (isUpdate) {
          keepLease(attempts);
          if (!isNumbered) {
            under = lease;
            number = ++sequence;
            isNumbered = true;
          }
        }
        // Each attempt says by which map it is sent.
        byte[] bytes = body.of(under, number);
        to = map.find(hash);
        if (to == null) {
          if (!attempts.waitFor(0)) {
            return Outcome.failed(obstacle, attempts.mayBeDone);
          }
          learn(attempts);
          continue;
        }
        Connection connection = connection(to);
        if (!connection.takes(bytes.length)) {
          return Outcome.failed(Status.VALUE_TOO_LONG, false);
        }
        sent++;
        Wire.Reply reply = connection.call(opcode, bytes, PATIENCE_MILLIS * 1000);
        Status status = Status.of(reply.status);
        if (status == Status.LEASE_ENDED && isUpdate) {
          boolean isKnown = sent == 1 && !attempts.mayBeDone;
          if (under == lease) {
            lease = 0;
          }
          if (!isKnown) {
            return Outcome.failed(status, true);
          }
          sent = 0;
          isNumbered = false;
          if (!attempts.waitFor(0)) {
            return Outcome.failed(status, false);
          }
          continue;
        }
        switch (status.next) {
          case TAKE:
            return taken(opcode, reply.body);
          case REFRESH:
            obstacle = status;
            // The first time at once.
            if (attempts.failures++ > 0 && !attempts.waitFor(0)) {
              return Outcome.failed(status, attempts.mayBeDone);
            }
            learn(attempts);
            break;
          case WAIT:
            obstacle = status;
            // The update is in the log of a server that may still lose it.
            attempts.mayBeDone |= isUpdate && status == Status.AWAITING_REPLICAS;
            if (!attempts.waitFor(reply.hint)) {
              return Outcome.failed(status, attempts.mayBeDone);
            }
            break;
          default:
            return refused(status, reply.body, attempts.mayBeDone);
        }
      } catch (IOException error) {
        if (to != null) {
          Connection broken = connections.remove(to);
          if (broken != null) {
            broken.close();
          }
          attempts.mayBeDone |= isUpdate && sent > 0 && !(error instanceof ConnectException);
        }
        if (!attempts.waitFor(0)) {
          return Outcome.failed(Status.OTHER, attempts.mayBeDone);
        }
        try {
          learn(attempts);
        } catch (IOException ignored) {
          // The map that there is may still be right.
        }
      }
    }
  }

  private static Outcome taken(Opcode opcode, byte[] body) throws IOException {
    if (body.length < 8 || opcode != Opcode.READ && body.length != 8) {
      throw new Wire.Broken("an answer has " + body.length + " bytes");
    }
    byte[] value = opcode == Opcode.READ ? new byte[body.length - 8] : NOTHING;
    System.arraycopy(body, 8, value, 0, value.length);
    return new Outcome(Status.OK, false, Wire.view(body).getLong(0), value);
  }

  private static Outcome refused(Status status, byte[] body, boolean mayBeDone) {
    // Servers record refusals that depend on the object: such a refusal says that no attempt was done.
    boolean isUnknown = mayBeDone && (status == Status.STALE || status == Status.OTHER);
    boolean tellsVersion = status == Status.CONDITION_FAILED && body.length == 8;
    long version = tellsVersion ? Wire.view(body).getLong(0) : 0;
    return new Outcome(status, isUnknown, version, NOTHING);
  }

  private Connection connect(InetSocketAddress to, int patienceMillis) throws IOException {
    Connection connection = new Connection(to, patienceMillis, cluster);
    if (cluster == 0) {
      cluster = connection.cluster();
    }
    return connection;
  }

  private Connection connection(InetSocketAddress to) throws IOException {
    Connection connection = connections.get(to);
    if (connection == null) {
      connection = connect(to, PATIENCE_MILLIS);
      connections.put(to, connection);
    }
    return connection;
  }

  /** Asks where the tablets are; false if there is no such table. */
  private boolean learn(Attempts attempts) throws IOException {
    Map<String, Object> body = new HashMap<>();
    body.put("table", name);
    Wire.Reply reply = ask(Opcode.MAP, body, attempts);
    Status status = Status.of(reply.status);
    if (status == Status.NO_SUCH_TABLE) {
      return false;
    }
    if (status != Status.OK) {
      throw new IOException("the coordinator does not tell of the tablets: status " + reply.status);
    }
    map = TabletMap.of(reply.body, name);
    return true;
  }

  /** Sees to it that there is a lease, and renews it when a third of its time is over. */
  private void keepLease(Attempts attempts) throws IOException {
    long now = System.nanoTime();
    if (lease != 0 && now - heardAt < leaseNanos / 3) {
      return;
    }
    Map<String, Object> body = new HashMap<>();
    if (lease != 0 && now - heardAt < leaseNanos) {
      body.put("lease", new BigInteger(Long.toUnsignedString(lease)));
      if (Status.of(ask(Opcode.RENEW_LEASE, body, attempts).status) == Status.OK) {
        heardAt = now;
        return;
      }
      body.clear();
    }
    Wire.Reply reply = ask(Opcode.OPEN_LEASE, body, attempts);
    if (Status.of(reply.status) != Status.OK) {
      throw new IOException("the coordinator gives no lease: status " + reply.status);
    }
    lease = TabletMap.number(TabletMap.parse(reply.body), "lease");
    leaseNanos = TabletMap.number(TabletMap.parse(reply.body), "ttl_ms") * 1_000_000;
    heardAt = now;
    sequence = 0;
  }

  /** Asks the coordinator that leads. */
  private Wire.Reply ask(Opcode opcode, Map<String, Object> message, Attempts attempts)
      throws IOException {
    byte[] body = JSON.writeValueAsString(message).getBytes(StandardCharsets.UTF_8);
    int tried = 0;
    while (true) {
      IOException failed;
      try {
        if (coordinator == null) {
          coordinator = connect(coordinators.get(leader), COORDINATOR_PATIENCE_MILLIS);
        }
        Wire.Reply reply =
            coordinator.call(opcode, body, COORDINATOR_PATIENCE_MILLIS * 1000);
        Status.Next next = Status.of(reply.status).next;
        if (next == Status.Next.WAIT) {
          if (!attempts.waitFor(reply.hint)) {
            return reply;
          }
          continue;
        }
        if (next != Status.Next.REFRESH) {
          return reply;
        }
        failed = new IOException("no coordinator leads");
      } catch (IOException error) {
        failed = error;
      }
      if (coordinator != null) {
        coordinator.close();
        coordinator = null;
      }
      leader = (leader + 1) % coordinators.size();
      tried++;
      if (tried % coordinators.size() == 0 && !attempts.waitFor(0)) {
        throw failed;
      }
    }
  }

  @Override
  public void close() {
    if (lease != 0 && coordinator != null) {
      try {
        Map<String, Object> body = new HashMap<>();
        body.put("lease", new BigInteger(Long.toUnsignedString(lease)));
        byte[] bytes = JSON.writeValueAsString(body).getBytes(StandardCharsets.UTF_8);
        coordinator.call(Opcode.CLOSE_LEASE, bytes, PATIENCE_MILLIS * 1000);
      } catch (IOException ignored) {
        // It ends by itself.
      }
    }
    if (coordinator != null) {
      coordinator.close();
    }
    connections.values().forEach(Connection::close);
    connections.clear();
  }
}
