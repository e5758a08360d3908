package dev.thunderhead;

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
  public static final TableOptions DEFAULT = new TableOptions(FOREVER, Policy.DURABLE);

  /** The behaviour of a table when memory is full. */
  public enum Policy {
    /** Its objects stay, and writes are refused. */
    DURABLE,
    /** Objects that were not used lately make room for new ones. */
    CACHE
  }

  private final Duration ttl;
  private final Policy policy;

  private TableOptions(Duration ttl, Policy policy) {
    this.ttl = ttl;
    this.policy = policy;
  }

  /** Makes options of the numbers that cross the border. */
  static TableOptions of(long ttl, int policy) {
    Duration time = ttl == 0 ? FOREVER : Arguments.ttlOf(ttl);
    return new TableOptions(time, policy == 1 ? Policy.CACHE : Policy.DURABLE);
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
    return new TableOptions(ttl, policy);
  }

  /**
   * Returns these options with another policy.
   *
   * @param policy the behaviour when memory is full
   * @return the options
   */
  public TableOptions withPolicy(Policy policy) {
    return new TableOptions(ttl, Objects.requireNonNull(policy, "the policy is null"));
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

  /** Returns the default time to live as it crosses the border: 0 for ever. */
  long ttlCode() {
    long code = Arguments.ttl(ttl);
    return code == Arguments.TTL_FOREVER ? 0 : code;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TableOptions options
        && ttl.equals(options.ttl)
        && policy == options.policy;
  }

  @Override
  public int hashCode() {
    return Objects.hash(ttl, policy);
  }

  @Override
  public String toString() {
    return "ttl " + (ttl.equals(FOREVER) ? "for ever" : ttl) + ", policy " + policy;
  }
}
