package thunderhead.wire;

/**
 * What a request came to, and what its sender does next. Statuses that are not here, known or not,
 * mean giving up.
 */
public enum Status {
  OK(0, Next.TAKE),
  BUSY(4, Next.WAIT),
  MOVED(5, Next.REFRESH),
  CONDITION_FAILED(7, Next.GIVE_UP),
  NO_SPACE(8, Next.WAIT),
  NOT_FOUND(9, Next.GIVE_UP),
  KEY_EMPTY(10, Next.GIVE_UP),
  KEY_TOO_LONG(11, Next.GIVE_UP),
  VALUE_TOO_LONG(12, Next.GIVE_UP),
  STALE(15, Next.GIVE_UP),
  NOT_LEADER(17, Next.REFRESH),
  LEASE_ENDED(18, Next.GIVE_UP),
  TABLE_EXISTS(19, Next.GIVE_UP),
  NO_SUCH_TABLE(20, Next.GIVE_UP),
  NO_SERVERS(22, Next.WAIT),
  METASTORE_UNAVAILABLE(25, Next.WAIT),
  IN_PROGRESS(29, Next.WAIT),
  OTHER_LIFE(31, Next.WAIT),
  LEADERSHIP_LOST(32, Next.REFRESH),
  AWAITING_REPLICAS(33, Next.WAIT),
  AWAITING_LEASE(34, Next.WAIT),
  AWAITING_MEMORY(35, Next.WAIT),
  /** Any other. */
  OTHER(-1, Next.GIVE_UP);

  /** What the sender does. */
  public enum Next {
    TAKE,
    REFRESH,
    WAIT,
    GIVE_UP
  }

  /** The number on the wire. */
  public final int code;

  /** What the sender does. */
  public final Next next;

  private static final Status[] BY_CODE = new Status[64];

  static {
    for (Status status : values()) {
      if (status.code >= 0) {
        BY_CODE[status.code] = status;
      }
    }
  }

  Status(int code, Next next) {
    this.code = code;
    this.next = next;
  }

  /** The status with a number. */
  public static Status of(int code) {
    Status found = code >= 0 && code < BY_CODE.length ? BY_CODE[code] : null;
    return found == null ? OTHER : found;
  }
}
