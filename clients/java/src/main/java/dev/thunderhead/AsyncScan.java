package dev.thunderhead;

import java.lang.ref.Cleaner;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/**
 * The objects of a table, page by page, for one reader. Close it if you do not read it to its end.
 *
 * <p>An object that exists during the whole enumeration comes exactly once. An object that is
 * created or deleted meanwhile comes or not.
 */
public final class AsyncScan implements AutoCloseable {
  private final Thunderhead db;
  private final Queue queue;
  private final long scan;
  private final Cleaner.Cleanable closer;
  private final AtomicBoolean isFetching = new AtomicBoolean();
  private volatile boolean isLast;
  private volatile boolean isClosed;

  AsyncScan(Thunderhead db, long table) {
    this.db = db;
    queue = db.connection.queue();
    scan = queue.openScan(table);
    Queue sameQueue = queue;
    long sameScan = scan;
    closer = Connection.endWith(this, () -> sameQueue.closeScan(sameScan));
  }

  /**
   * Fetches the next page. The next one can be fetched when the returned future has ended. After a
   * failure the same page can be fetched again.
   *
   * @return the objects of the page; none at the end
   * @throws IllegalStateException if the former page has not come yet, or the scan is closed
   */
  public CompletableFuture<List<Entry>> nextPage() {
    if (isClosed) {
      throw new IllegalStateException("the scan is closed; begin another one");
    }
    if (!isFetching.compareAndSet(false, true)) {
      throw new IllegalStateException("the former page has not come yet; wait for its future");
    }
    if (isLast) {
      isFetching.set(false);
      return CompletableFuture.completedFuture(List.of());
    }
    Operation<Call.NextPage.Page> first = queue.begin(new Call.NextPage(scan), db.deadline);
    CompletableFuture<List<Entry>> page = first.newIncompleteFuture();
    take(first, page);
    return page;
  }

  private void take(
      CompletableFuture<Call.NextPage.Page> fetched, CompletableFuture<List<Entry>> page) {
    fetched.whenComplete(
        (next, error) -> {
          if (error == null && next.entries().isEmpty() && !next.isLast() && !page.isDone()) {
            // Parts of a table may be empty.
            take(queue.begin(new Call.NextPage(scan), db.deadline), page);
            return;
          }
          if (error == null && next.isLast()) {
            isLast = true;
            closer.clean();
          }
          isFetching.set(false);
          if (error == null) {
            page.complete(next.entries());
          } else {
            page.completeExceptionally(error);
          }
        });
  }

  /**
   * Reads all remaining pages and gives each object to an action, on the thread that completes
   * futures.
   *
   * @param action must not wait
   * @return a future that ends after the last object, or when a page or the action fails
   */
  public CompletableFuture<Void> forEach(Consumer<? super Entry> action) {
    Objects.requireNonNull(action, "the action is null");
    return nextPage()
        .thenCompose(
            page -> {
              page.forEach(action);
              return page.isEmpty() ? CompletableFuture.completedFuture(null) : forEach(action);
            });
  }

  /** Ends the scan. Closing it again does nothing. */
  @Override
  public void close() {
    isClosed = true;
    closer.clean();
  }
}
