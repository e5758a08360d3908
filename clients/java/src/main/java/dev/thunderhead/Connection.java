package dev.thunderhead;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The native clients behind a {@link Thunderhead} and all its tables.
 *
 * <p>They are closed by {@link #close}, or once no object refers to this one any more. So all that
 * outlives it ({@link State}, the completer) does not refer to it.
 */
final class Connection {
  private static final Cleaner CLEANER = Cleaner.create();

  private final State state;
  private final Cleaner.Cleanable closer;

  /** The deadline of operations by default, in nanoseconds. */
  final long deadline;

  /** The native clients. */
  private static final class State implements Runnable {
    final byte[] url;
    final long deadline;
    final Pool pool;

    /** The queue, or null as long as nothing uses it. */
    final AtomicReference<CompletableFuture<Queue>> queue = new AtomicReference<>();

    volatile boolean isClosed;

    State(byte[] url, long deadline, Pool pool) {
      this.url = url;
      this.deadline = deadline;
      this.pool = pool;
    }

    @Override
    public void run() {
      isClosed = true;
      CompletableFuture<Queue> opened = queue.get();
      pool.close();
      if (opened == null) {
        return;
      }
      if (opened.isDone() && !opened.isCompletedExceptionally()) {
        opened.join().close();
      } else {
        // It is being opened. The thread that opens it closes it.
        opened.thenAccept(Queue::close);
      }
    }
  }

  private Connection(State state) {
    this.state = state;
    this.deadline = state.deadline;
    this.closer = CLEANER.register(this, state);
  }

  /**
   * Opens a connection. A deadline of 0 is that of the URL, or else that of the native library.
   *
   * @throws IllegalArgumentException if the URL is wrong
   * @throws UnsatisfiedLinkError if the native library cannot be loaded
   */
  static Connection open(String url, long deadline) {
    byte[] bytes = Arguments.utf8(url, "the URL");
    Library.load();
    long[] handles = new long[2];
    byte[] refusal = Native.openPool(bytes, deadline, handles);
    if (refusal != null) {
      throw Call.takeRefusal(refusal);
    }
    return new Connection(new State(bytes, handles[1], new Pool(handles[0])));
  }

  /** Calls `end` once no object refers to `object`. `end` must not refer to it either. */
  static Cleaner.Cleanable endWith(Object object, Runnable end) {
    return CLEANER.register(object, end);
  }

  void close() {
    closer.clean();
  }

  Pool pool() {
    return state.pool;
  }

  /** Returns the queue. Opens it if it is not open, which takes at most the deadline. */
  Queue queue() {
    while (true) {
      CompletableFuture<Queue> opened = state.queue.get();
      if (opened != null) {
        return Queue.await(opened);
      }
      if (state.isClosed) {
        throw Errors.closed();
      }
      open();
    }
  }

  private void open() {
    State state = this.state;
    CompletableFuture<Queue> promise = new CompletableFuture<>();
    if (!state.queue.compareAndSet(null, promise)) {
      return;
    }
    Queue.open(state.url, state.deadline)
        .whenComplete(
            (queue, error) -> {
              if (error != null) {
                // The next use is another attempt.
                state.queue.compareAndSet(promise, null);
                promise.completeExceptionally(error);
              } else {
                promise.complete(queue);
              }
            });
    if (state.isClosed) {
      // The connection was closed at the same time, perhaps before it could see the promise.
      promise.thenAccept(Queue::close);
    }
  }

  /** Does a request on this thread. A virtual thread waits without a carrier. */
  <T> T call(Call<T> call, long deadline) {
    try {
      if (Threads.isVirtual()) {
        return queue().begin(call, deadline).await();
      }
      return state.pool.call(call, deadline);
    } finally {
      // Otherwise the connection could be closed meanwhile, if this is its last use.
      Reference.reachabilityFence(this);
    }
  }

  <T> CompletableFuture<T> begin(Call<T> call, long deadline) {
    try {
      return queue().begin(call, deadline);
    } finally {
      Reference.reachabilityFence(this);
    }
  }
}
