package dev.thunderhead;

import java.time.Duration;
import java.util.List;
import java.util.Objects;

/**
 * A client of a cluster. Any thread may use it, and a program needs only one for each cluster.
 *
 * <pre>{@code
 * try (var db = Thunderhead.connect("thunderhead://localhost")) {
 *   Table users = db.table("users");
 *   long version = users.put("ada", "analyst");
 *   users.putIf("ada", "countess", Condition.versionIs(version));
 * }
 * }</pre>
 *
 * <p>The calling thread does the I/O of its operations itself, and up to 64 threads do so at the
 * same time. A virtual thread waits without a carrier. Interrupting a thread ends its operation
 * within 100 ms, with a {@link CancelledException}, or with an {@link OutcomeUnknownException} if
 * it may have been done. The interrupt flag stays set.
 *
 * <p>Every operation ends by the deadline (10 seconds by default). Until then the client masks all
 * temporary obstacles. {@link NotDoneException} and {@link OutcomeUnknownException} are the errors.
 */
public final class Thunderhead implements AutoCloseable {
  final Connection connection;
  final long deadline;

  private Thunderhead(Connection connection, long deadline) {
    this.connection = connection;
    this.deadline = deadline;
  }

  /**
   * Connects to a cluster, and waits until a coordinator answers.
   *
   * @param url such as {@code thunderhead://host1,host2:7071/?deadline=2s}: some coordinators
   * @return the client
   * @throws IllegalArgumentException if the URL is wrong
   * @throws NotDoneException if no coordinator answers by the deadline, or no host has an address
   * @throws UnsatisfiedLinkError if the native library cannot be loaded
   */
  public static Thunderhead connect(String url) {
    return builder(url).connect();
  }

  /**
   * Begins a client with settings of its own.
   *
   * @param url see {@link #connect}
   * @return the builder
   */
  public static Builder builder(String url) {
    return new Builder(Objects.requireNonNull(url, "the URL is null"));
  }

  /** The settings of a new client. */
  public static final class Builder {
    private final String url;
    private long deadline;

    private Builder(String url) {
      this.url = url;
    }

    /**
     * Sets the time limit of each operation, retries included. It replaces that of the URL.
     *
     * @param deadline more than nothing and at most a year
     * @return this builder
     */
    public Builder deadline(Duration deadline) {
      this.deadline = Arguments.deadline(deadline);
      return this;
    }

    /**
     * Connects: see {@link Thunderhead#connect}.
     *
     * @return the client
     */
    public Thunderhead connect() {
      Connection connection = Connection.open(url, deadline);
      return new Thunderhead(connection, connection.deadline);
    }
  }

  /**
   * Returns a handle to the same client with another time limit. Closing it closes the client.
   *
   * @param deadline more than nothing and at most a year
   * @return the handle
   */
  public Thunderhead withDeadline(Duration deadline) {
    return new Thunderhead(connection, Arguments.deadline(deadline));
  }

  /**
   * Returns a handle to the same client whose methods return futures. The first call connects, and
   * waits for that.
   *
   * @return the handle
   */
  public AsyncThunderhead async() {
    connection.queue();
    return new AsyncThunderhead(this);
  }

  /**
   * Returns a table that exists.
   *
   * @param name the name
   * @return the table
   * @throws NoSuchTableException if there is no such table
   */
  public Table table(String name) {
    return new Table(this, tableInfo(name));
  }

  /**
   * Returns a table with its tablets.
   *
   * @param name the name
   * @return the table
   * @throws NoSuchTableException if there is no such table
   */
  public TableInfo tableInfo(String name) {
    return named(ask(Call.Question.of(Call.LOOK_UP, name, 0, 0)), name);
  }

  static TableInfo named(List<TableInfo> tables, String name) {
    return tables.stream()
        .filter(table -> table.name().equals(name))
        .findFirst()
        .orElseThrow(() -> Errors.noTable(name));
  }

  /**
   * Creates a table on one shard.
   *
   * @param name the name: 1 to 255 bytes
   * @return the table
   * @throws TableExistsException if there is a table of this name
   */
  public Table createTable(String name) {
    return createTable(name, 1);
  }

  /**
   * Creates a table.
   *
   * @param name the name: 1 to 255 bytes
   * @param span over how many shards to spread it
   * @return the table
   * @throws TableExistsException if there is a table of this name
   */
  public Table createTable(String name, int span) {
    return createTable(name, span, TableOptions.DEFAULT);
  }

  /**
   * Creates a table with options on one shard.
   *
   * @param name the name: 1 to 255 bytes
   * @param options the options
   * @return the table
   * @throws TableExistsException if there is a table of this name
   */
  public Table createTable(String name, TableOptions options) {
    return createTable(name, 1, options);
  }

  /**
   * Creates a table with options.
   *
   * @param name the name: 1 to 255 bytes
   * @param span over how many shards to spread it
   * @param options the options
   * @return the table
   * @throws TableExistsException if there is a table of this name
   */
  public Table createTable(String name, int span, TableOptions options) {
    return new Table(this, named(ask(creation(name, span, options)), name));
  }

  static Call.Question creation(String name, int span, TableOptions options) {
    if (span < 1) {
      throw new IllegalArgumentException("the span is " + span + "; it must be at least 1");
    }
    Objects.requireNonNull(options, "the options are null");
    return Call.Question.creation(name, span, options);
  }

  /**
   * Deletes a table with all its objects.
   *
   * @param name the name
   * @throws NoSuchTableException if there is no such table
   */
  public void dropTable(String name) {
    ask(Call.Question.of(Call.DROP_TABLE, name, 0, 0));
  }

  /**
   * Returns all tables.
   *
   * @return the tables
   */
  public List<TableInfo> tables() {
    return ask(Call.Question.list());
  }

  /**
   * Splits the tablet that has a hash into two.
   *
   * @param table the name of the table
   * @param at the first hash of the second tablet
   * @return the table
   */
  public TableInfo split(String table, long at) {
    return named(ask(Call.Question.of(Call.SPLIT, table, at, 0)), table);
  }

  /**
   * Moves a tablet to another master, and waits until it has moved. A large tablet takes longer
   * than the default deadline: see {@link #withDeadline}.
   *
   * @param table the name of the table
   * @param first the first hash of the tablet
   * @param master the id of the master
   * @return the table
   */
  public TableInfo migrate(String table, long first, long master) {
    return named(ask(Call.Question.of(Call.MIGRATE, table, first, master)), table);
  }

  private List<TableInfo> ask(Call.Question question) {
    return connection.call(question, deadline);
  }

  /**
   * Closes the client and ends its leases. Operations in progress end as usual, by their deadlines,
   * and later ones are refused with a {@link ClosedException}. Waits until the futures in progress
   * have ended. Closing it again does nothing.
   */
  @Override
  public void close() {
    connection.close();
  }
}
