package dev.thunderhead;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The native completion queue, for futures.
 *
 * <p>A thread that begins an operation appends it to the buffer that is being filled. If no other
 * thread submits, it submits the buffer, and again as long as others have appended meanwhile. So
 * operations that threads begin at the same time cross the border together.
 *
 * <p>One daemon thread, the completer, waits for completions and completes the futures. Operations
 * that their steps begin are submitted after the last completion that came at the same time.
 *
 * <p>The completer frees the native queue at its end, when nothing is in progress any more. All
 * other uses of the handle hold the lock and look at {@code isFreed}, or have operations in
 * progress.
 */
final class Queue {
  private static final int BUFFER_BYTES = 128 << 10;
  private static final int RESULT_BYTES = 256 << 10;

  private final ReentrantLock lock = new ReentrantLock();
  private final Thread completer;
  private volatile long handle;

  /** Guarded by the lock, like all that follows. */
  private boolean isClosed;

  private boolean isFreed;

  /** The operations in progress, by tag. */
  private Operation<?>[] open = new Operation<?>[64];

  /** The tags that are free: the first {@code freeCount}. */
  private int[] free = new int[64];

  private int freeCount;

  /** Whether a thread submits at the moment. */
  private boolean isSubmitting;

  private Batch filling = new Batch();

  /** The batch that is submitted, or an empty one. */
  private Batch other = new Batch();

  /** Whether the completer has more completions at hand. Only the completer uses it. */
  private boolean isCompleting;

  /** Requests in bytes, and their operations. */
  private static final class Batch {
    final ByteBuffer buffer = Buffers.direct(BUFFER_BYTES);
    final long address = Native.address(buffer);
    final List<Operation<?>> operations = new ArrayList<>();
  }

  private Queue(byte[] url, long deadline, CompletableFuture<Queue> opened) {
    freeCount = free.length;
    for (int tag = 0; tag < freeCount; tag++) {
      free[tag] = freeCount - 1 - tag;
    }
    completer = new Thread(() -> run(url, deadline, opened), "thunderhead-completer");
    completer.setDaemon(true);
  }

  /** Opens a queue. The future ends with a ThunderheadException if no coordinator answers. */
  static CompletableFuture<Queue> open(byte[] url, long deadline) {
    CompletableFuture<Queue> opened = new CompletableFuture<>();
    new Queue(url, deadline, opened).completer.start();
    return opened;
  }

  boolean isCompleter() {
    return Thread.currentThread() == completer;
  }

  /** Begins an operation. The deadline is in nanoseconds. */
  <T> Operation<T> begin(Call<T> call, long deadline) {
    Operation<T> operation = new Operation<>(this, call);
    int bytes = call.bytes();
    byte[] alone = null;
    int length = 0;
    lock.lock();
    try {
      if (isClosed) {
        operation.fail(Errors.closed());
        return operation;
      }
      int tag = takeTag();
      open[tag] = operation;
      if (bytes <= filling.buffer.remaining()) {
        call.put(filling.buffer, tag, deadline);
        filling.operations.add(operation);
        if (isSubmitting || (isCompleting && isCompleter())) {
          return operation;
        }
        isSubmitting = true;
      } else {
        ByteBuffer large = Buffers.heap(bytes);
        call.put(large, tag, deadline);
        alone = large.array();
        length = large.position();
      }
    } finally {
      lock.unlock();
    }
    if (alone == null) {
      submitAll();
    } else {
      submitAlone(operation, alone, length);
    }
    return operation;
  }

  private int takeTag() {
    if (freeCount == 0) {
      int count = open.length;
      open = Arrays.copyOf(open, 2 * count);
      free = new int[2 * count];
      for (freeCount = 0; freeCount < count; freeCount++) {
        free[freeCount] = 2 * count - 1 - freeCount;
      }
    }
    return free[--freeCount];
  }

  /** Submits batches until no request is left. The caller has set `isSubmitting`. */
  private void submitAll() {
    while (true) {
      Batch batch;
      lock.lock();
      try {
        if (filling.operations.isEmpty()) {
          isSubmitting = false;
          if (isClosed) {
            // The completer may have found this thread submitting, and waits.
            Native.wake(handle);
          }
          return;
        }
        batch = filling;
        filling = other;
        other = batch;
      } finally {
        lock.unlock();
      }
      submit(batch);
      batch.buffer.clear();
      batch.operations.clear();
    }
  }

  private void submit(Batch batch) {
    try {
      began(batch.operations, Native.submit(handle, batch.address, batch.buffer.position()));
    } catch (ThunderheadException error) {
      refuse(batch.operations, error);
    }
  }

  private void submitAlone(Operation<?> operation, byte[] request, int length) {
    List<Operation<?>> operations = List.of(operation);
    try {
      began(operations, Native.submitArray(handle, request, length));
    } catch (ThunderheadException error) {
      refuse(operations, error);
    }
  }

  private void began(List<Operation<?>> operations, long first) {
    if (first < 0) {
      refuse(operations, Errors.closed());
      return;
    }
    for (int at = 0; at < operations.size(); at++) {
      operations.get(at).began(first + at);
    }
  }

  /** Ends operations that have not begun. */
  private void refuse(List<Operation<?>> operations, ThunderheadException error) {
    lock.lock();
    try {
      for (int tag = 0; tag < open.length; tag++) {
        if (open[tag] != null && operations.contains(open[tag])) {
          open[tag] = null;
          giveTag(tag);
        }
      }
    } finally {
      lock.unlock();
    }
    operations.forEach(operation -> operation.fail(error));
  }

  private void giveTag(int tag) {
    free[freeCount++] = tag;
  }

  void cancel(long number) {
    lock.lock();
    try {
      if (!isFreed) {
        Native.cancel(handle, number);
      }
    } finally {
      lock.unlock();
    }
  }

  long openScan(long table) {
    lock.lock();
    try {
      if (isClosed) {
        throw Errors.closed();
      }
      return Native.openQueueScan(handle, table);
    } finally {
      lock.unlock();
    }
  }

  void closeScan(long scan) {
    lock.lock();
    try {
      if (!isFreed) {
        Native.closeQueueScan(handle, scan);
      }
    } finally {
      lock.unlock();
    }
  }

  /**
   * Closes the queue. Operations in progress end as usual, by their deadlines. Waits for that,
   * unless the thread is interrupted or is the completer.
   */
  void close() {
    lock.lock();
    try {
      isClosed = true;
      if (!isFreed) {
        Native.wake(handle);
      }
    } finally {
      lock.unlock();
    }
    if (isCompleter()) {
      return;
    }
    try {
      completer.join();
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
    }
  }

  private void run(byte[] url, long deadline, CompletableFuture<Queue> opened) {
    try {
      long[] handles = new long[2];
      byte[] refusal = Native.openQueue(url, deadline, handles);
      if (refusal != null) {
        opened.completeExceptionally(Call.takeRefusal(refusal));
        return;
      }
      handle = handles[0];
    } catch (Throwable error) {
      opened.completeExceptionally(error);
      return;
    }
    opened.complete(this);
    Throwable failure = null;
    try {
      ByteBuffer buffer = Buffers.direct(RESULT_BYTES);
      long address = Native.address(buffer);
      while (!isOver()) {
        byte[] result = Native.take(handle, address, RESULT_BYTES);
        complete(result == null ? buffer.clear() : Buffers.of(result));
      }
    } catch (Throwable error) {
      failure = error;
    }
    leave(failure);
  }

  /** Whether the queue is closed and nothing is in progress. */
  private boolean isOver() {
    lock.lock();
    try {
      return isClosed && !isSubmitting && freeCount == free.length;
    } finally {
      lock.unlock();
    }
  }

  /** Completes the futures of some completions. */
  private void complete(ByteBuffer from) {
    int count = from.getInt();
    for (int at = 0; at < count; at++) {
      isCompleting = at < count - 1;
      int tag = (int) from.getLong();
      int length = from.getInt();
      takeOperation(tag).take(from, length);
    }
    isCompleting = false;
    boolean isLeader;
    lock.lock();
    try {
      isLeader = !isSubmitting && !filling.operations.isEmpty();
      isSubmitting |= isLeader;
    } finally {
      lock.unlock();
    }
    if (isLeader) {
      submitAll();
    }
  }

  private Operation<?> takeOperation(int tag) {
    lock.lock();
    try {
      Operation<?> operation = open[tag];
      open[tag] = null;
      giveTag(tag);
      return operation;
    } finally {
      lock.unlock();
    }
  }

  /** Frees the native queue. After a failure, ends the operations in progress. */
  private void leave(Throwable failure) {
    List<Operation<?>> left = new ArrayList<>();
    lock.lock();
    try {
      isClosed = true;
      for (Operation<?> operation : open) {
        if (operation != null) {
          left.add(operation);
        }
      }
    } finally {
      lock.unlock();
    }
    for (Operation<?> operation : left) {
      operation.fail(new InternalException("the completer has ended: " + failure));
    }
    Native.closeQueue(handle);
    lock.lock();
    try {
      // A thread that still submits after a failure uses the handle; then it is not freed.
      if (!isSubmitting) {
        isFreed = true;
        Native.freeQueue(handle);
      }
    } finally {
      lock.unlock();
    }
  }

  /** Waits until a queue is open. */
  static Queue await(CompletableFuture<Queue> opened) {
    try {
      return opened.get();
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
      throw Errors.interrupted();
    } catch (ExecutionException error) {
      if (error.getCause() instanceof ThunderheadException failure) {
        throw failure.here();
      }
      if (error.getCause() instanceof Error failure) {
        throw failure;
      }
      throw new InternalException("the client has a bug: " + error.getCause());
    }
  }
}
