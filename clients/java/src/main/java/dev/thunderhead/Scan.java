package dev.thunderhead;

import java.lang.ref.Cleaner;
import java.util.Iterator;
import java.util.List;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * The objects of a table, page by page. A scan that is neither read to its end nor closed ends with
 * its last reference.
 */
final class Scan extends Spliterators.AbstractSpliterator<Entry> {
  private final Supplier<Call.NextPage.Page> pages;
  private final Cleaner.Cleanable closer;
  private Iterator<Entry> page = List.<Entry>of().iterator();
  private boolean isFirst = true;
  private boolean isLast;
  private boolean isClosed;
  private ThunderheadException failure;

  private Scan(Supplier<Call.NextPage.Page> pages, Runnable end) {
    super(Long.MAX_VALUE, Spliterator.NONNULL | Spliterator.IMMUTABLE);
    this.pages = pages;
    this.closer = Connection.endWith(this, end);
  }

  static Stream<Entry> stream(Thunderhead db, long table) {
    Scan scan = open(db, table);
    return StreamSupport.stream(scan, false).onClose(scan::close);
  }

  /** Begins a scan on the calling thread, or for a virtual thread on the queue. */
  private static Scan open(Thunderhead db, long table) {
    if (Threads.isVirtual()) {
      Queue queue = db.connection.queue();
      long scan = queue.openScan(table);
      return new Scan(
          () -> queue.begin(new Call.NextPage(scan), db.deadline).await(),
          () -> queue.closeScan(scan));
    }
    Pool pool = db.connection.pool();
    long scan = pool.openScan(table, db.deadline);
    return new Scan(
        () -> pool.call(new Call.NextPage(scan), db.deadline), () -> pool.closeScan(scan));
  }

  @Override
  public boolean tryAdvance(Consumer<? super Entry> action) {
    while (!page.hasNext()) {
      if (failure != null) {
        throw failure;
      }
      if (isLast) {
        return false;
      }
      if (isClosed) {
        throw new IllegalStateException("the scan is closed; begin another one");
      }
      fetch();
    }
    action.accept(page.next());
    return true;
  }

  private void fetch() {
    try {
      if (!isFirst && Thread.currentThread().isInterrupted()) {
        throw Errors.interrupted();
      }
      isFirst = false;
      Call.NextPage.Page next = pages.get();
      page = next.entries().iterator();
      isLast = next.isLast();
    } catch (ThunderheadException error) {
      failure = error;
    }
    if (isLast || failure != null) {
      closer.clean();
    }
  }

  private void close() {
    isClosed = true;
    page = List.<Entry>of().iterator();
    closer.clean();
  }
}
