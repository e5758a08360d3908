package dev.thunderhead;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * A client whose methods return futures: see {@link Thunderhead#async()}.
 *
 * <p>A future ends with the exceptions that the method of {@link Thunderhead} throws. One thread
 * completes all futures of a client, so their steps must not wait; use {@code thenApplyAsync} for
 * long work.
 */
public final class AsyncThunderhead {
  private final Thunderhead db;

  AsyncThunderhead(Thunderhead db) {
    this.db = db;
  }

  /**
   * Returns a table that exists: see {@link Thunderhead#table}.
   *
   * @param name the name
   * @return the table
   */
  public CompletableFuture<AsyncTable> table(String name) {
    return map(ask(Call.Question.of(Call.LOOK_UP, name, 0, 0)), tables -> table(tables, name));
  }

  /**
   * Creates a table on one shard: see {@link Thunderhead#createTable(String)}.
   *
   * @param name the name
   * @return the table
   */
  public CompletableFuture<AsyncTable> createTable(String name) {
    return createTable(name, 1);
  }

  /**
   * Creates a table: see {@link Thunderhead#createTable(String, int)}.
   *
   * @param name the name
   * @param span over how many shards to spread it
   * @return the table
   */
  public CompletableFuture<AsyncTable> createTable(String name, int span) {
    return createTable(name, span, TableOptions.DEFAULT);
  }

  /**
   * Creates a table with options: see {@link Thunderhead#createTable(String, int, TableOptions)}.
   *
   * @param name the name
   * @param span over how many shards to spread it
   * @param options the options
   * @return the table
   */
  public CompletableFuture<AsyncTable> createTable(String name, int span, TableOptions options) {
    return map(ask(Thunderhead.creation(name, span, options)), tables -> table(tables, name));
  }

  private AsyncTable table(List<TableInfo> tables, String name) {
    return new AsyncTable(new Table(db, Thunderhead.named(tables, name)));
  }

  /**
   * Deletes a table with all its objects: see {@link Thunderhead#dropTable}.
   *
   * @param name the name
   * @return nothing
   */
  public CompletableFuture<Void> dropTable(String name) {
    return map(ask(Call.Question.of(Call.DROP_TABLE, name, 0, 0)), tables -> null);
  }

  /**
   * Returns all tables.
   *
   * @return the tables
   */
  public CompletableFuture<List<TableInfo>> tables() {
    return ask(Call.Question.list());
  }

  /**
   * Splits a tablet: see {@link Thunderhead#split}.
   *
   * @param table the name of the table
   * @param at the first hash of the second tablet
   * @return the table
   */
  public CompletableFuture<TableInfo> split(String table, long at) {
    return map(
        ask(Call.Question.of(Call.SPLIT, table, at, 0)),
        tables -> Thunderhead.named(tables, table));
  }

  /**
   * Moves a tablet: see {@link Thunderhead#migrate}.
   *
   * @param table the name of the table
   * @param first the first hash of the tablet
   * @param master the id of the master
   * @return the table
   */
  public CompletableFuture<TableInfo> migrate(String table, long first, long master) {
    return map(
        ask(Call.Question.of(Call.MIGRATE, table, first, master)),
        tables -> Thunderhead.named(tables, table));
  }

  private CompletableFuture<List<TableInfo>> ask(Call.Question question) {
    return db.connection.begin(question, db.deadline);
  }

  /**
   * Returns a future of the result of a function. It ends with the same exception as `from`,
   * without another one around it, and its cancelling cancels `from`.
   */
  static <A, B> CompletableFuture<B> map(CompletableFuture<A> from, Function<A, B> function) {
    CompletableFuture<B> to = from.newIncompleteFuture();
    from.whenComplete(
        (value, error) -> {
          if (error != null) {
            to.completeExceptionally(error);
            return;
          }
          try {
            to.complete(function.apply(value));
          } catch (ThunderheadException failure) {
            to.completeExceptionally(failure);
          }
        });
    to.whenComplete((value, error) -> from.cancel(true));
    return to;
  }
}
