package dev.thunderhead;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Objects;

/**
 * The options of a table, which never change after its creation.
 *
 * <pre>{@code
 * var options = TableOptions.DEFAULT.withTtl(Duration.ofHours(1));
 * Table sessions = db.createTable("sessions", options);
 * }</pre>
 *
 * <p>If an earlier release made the cluster, switch it to format 2 first.
 */
public final class TableOptions {
  /** As a time to live: the object never expires. */
  public static final Duration FOREVER = ChronoUnit.FOREVER.getDuration();

  /** Objects live for ever, and stay when memory is full. */
  public static final TableOptions DEFAULT = new TableOptions(FOREVER, Policy.DURABLE, 0, 0);

  /** The behaviour of a table when memory is full. */
  public enum Policy {
    /** Its objects stay, and writes are refused. */
    DURABLE,
    /** Objects that were not used lately make room for new ones. */
    CACHE
  }

  private final Duration ttl;
  private final Policy policy;
  private final long maxBytes;
  private final long reservedBytes;

  private TableOptions(Duration ttl, Policy policy, long maxBytes, long reservedBytes) {
    this.ttl = ttl;
    this.policy = policy;
    this.maxBytes = maxBytes;
    this.reservedBytes = reservedBytes;
  }

  /** Takes options as they cross the border. */
  static TableOptions take(ByteBuffer from) {
    long ttl = from.getLong();
    Duration time = ttl == 0 ? FOREVER : Arguments.ttlOf(ttl);
    Policy policy = from.get() == 1 ? Policy.CACHE : Policy.DURABLE;
    return new TableOptions(time, policy, from.getLong(), from.getLong());
  }

  /** Puts options as they cross the border. */
  void put(ByteBuffer to) {
    long code = Arguments.ttl(ttl);
    to.putLong(code == Arguments.TTL_FOREVER ? 0 : code).put((byte) policy.ordinal());
    to.putLong(maxBytes).putLong(reservedBytes);
  }

  /**
   * Returns these options with another default time to live.
   *
   * @param ttl how long an object lives if its write names no time: more than nothing, or {@link
   *     #FOREVER}
   * @return the options
   */
  public TableOptions withTtl(Duration ttl) {
    Arguments.ttl(ttl);
    return new TableOptions(ttl, policy, maxBytes, reservedBytes);
  }

  /**
   * Returns these options with another policy.
   *
   * @param policy the behaviour when memory is full
   * @return the options
   */
  public TableOptions withPolicy(Policy policy) {
    Objects.requireNonNull(policy, "the policy is null");
    return new TableOptions(ttl, policy, maxBytes, reservedBytes);
  }

  /**
   * Returns these options with a limit for the table. A durable table refuses writes that would
   * exceed it, and a cache evicts its own objects.
   *
   * @param maxBytes the most bytes of its objects, with their keys and headers; 0 for no limit
   * @return the options
   */
  public TableOptions withMaxBytes(long maxBytes) {
    return new TableOptions(ttl, policy, notNegative(maxBytes, "maximum"), reservedBytes);
  }

  /**
   * Returns these options with a reservation. Only a cache can have one.
   *
   * @param reservedBytes the bytes of which none are evicted for other tables
   * @return the options
   */
  public TableOptions withReservedBytes(long reservedBytes) {
    return new TableOptions(ttl, policy, maxBytes, notNegative(reservedBytes, "reservation"));
  }

  private static long notNegative(long bytes, String name) {
    if (bytes < 0) {
      throw new IllegalArgumentException("the " + name + " is " + bytes + " bytes");
    }
    return bytes;
  }

  /**
   * Returns how long an object lives if its write names no time.
   *
   * @return the time, or {@link #FOREVER}
   */
  public Duration ttl() {
    return ttl;
  }

  /**
   * Returns the behaviour when memory is full.
   *
   * @return the policy
   */
  public Policy policy() {
    return policy;
  }

  /**
   * Returns the most bytes of its objects.
   *
   * @return the bytes, or 0 for no limit
   */
  public long maxBytes() {
    return maxBytes;
  }

  /**
   * Returns the bytes of which none are evicted for other tables.
   *
   * @return the bytes
   */
  public long reservedBytes() {
    return reservedBytes;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TableOptions options
        && ttl.equals(options.ttl)
        && policy == options.policy
        && maxBytes == options.maxBytes
        && reservedBytes == options.reservedBytes;
  }

  @Override
  public int hashCode() {
    return Objects.hash(ttl, policy, maxBytes, reservedBytes);
  }

  @Override
  public String toString() {
    String limits = ", max " + maxBytes + ", reserved " + reservedBytes;
    return "ttl " + (ttl.equals(FOREVER) ? "for ever" : ttl) + ", policy " + policy + limits;
  }
}
