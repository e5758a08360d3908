package dev.thunderhead;

import java.nio.ByteBuffer;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.LongFunction;

/**
 * The native pool of clients, for threads that wait. The calling thread does the I/O.
 *
 * <p>Each call has a lane: a buffer for the request and the result. There are as many lanes as
 * clients in the native pool, so a thread waits here and not there, where an interrupt would not
 * reach it.
 *
 * <p>The handle is freed once the pool is closed and no call is in progress.
 */
final class Pool {
  /** The native pool has as many clients. */
  private static final int LANES = 64;

  private static final int LANE_BYTES = 32 << 10;

  private final long handle;

  /** The calls that may still begin. A thread takes all permits to free the handle. */
  private final Semaphore permits = new Semaphore(LANES);

  /** Lanes that no call uses. A thread looks first where it left its last one. */
  private final AtomicReferenceArray<Lane> idle = new AtomicReferenceArray<>(LANES);

  private volatile boolean isClosed;

  /** Whether the handle is freed. Changes only while this thread has all permits. */
  private volatile boolean isFreed;

  /** Whether a thread is closing the native pool. Guarded by this object. */
  private boolean isClosing;

  /** The memory of a call. */
  private static final class Lane {
    final ByteBuffer buffer = Buffers.direct(LANE_BYTES);
    final long address = Native.address(buffer);
  }

  /** Uses a pool that was opened. */
  Pool(long handle) {
    this.handle = handle;
  }

  /** Does a request and returns its result. The deadline is in nanoseconds. */
  <T> T call(Call<T> call, long deadline) {
    long left = enter(deadline);
    try {
      int home = (int) (Thread.currentThread().getId() & (LANES - 1));
      Lane lane = takeLane(home);
      try {
        return take(call, exchange(call, lane, left));
      } finally {
        giveLane(home, lane);
      }
    } finally {
      leave();
    }
  }

  private ByteBuffer exchange(Call<?> call, Lane lane, long deadline) {
    ByteBuffer buffer = lane.buffer;
    byte[] result;
    if (call.bytes() <= LANE_BYTES) {
      call.put(buffer.clear(), 0, deadline);
      result = Native.call(handle, lane.address, buffer.position(), LANE_BYTES);
    } else {
      ByteBuffer large = Buffers.heap(call.bytes());
      call.put(large, 0, deadline);
      result = Native.callArray(handle, large.array(), large.position());
    }
    return result == null ? buffer.clear() : Buffers.of(result);
  }

  /** Takes the only completion out of a result. */
  private static <T> T take(Call<T> call, ByteBuffer result) {
    int results = result.position(8).getInt();
    return call.take(result, results);
  }

  long openScan(long table, long deadline) {
    return use(deadline, pool -> Native.openScan(pool, table));
  }

  /** Ends a scan. Does nothing if the pool is closed. */
  void closeScan(long scan) {
    // The state of a scan is small: if all lanes are busy, it stays until the pool is closed.
    if (!isClosed && permits.tryAcquire()) {
      try {
        if (!isFreed) {
          Native.closeScan(handle, scan);
        }
      } finally {
        leave();
      }
    }
  }

  private <T> T use(long deadline, LongFunction<T> work) {
    enter(deadline);
    try {
      return work.apply(handle);
    } finally {
      leave();
    }
  }

  /** Begins a call. Returns the rest of its time limit. */
  private long enter(long deadline) {
    long left = permits.tryAcquire() ? deadline : await(deadline);
    if (isClosed) {
      leave();
      throw Errors.closed();
    }
    return left;
  }

  private long await(long deadline) {
    long began = System.nanoTime();
    try {
      if (!permits.tryAcquire(deadline, TimeUnit.NANOSECONDS)) {
        throw Errors.noLane();
      }
      // A limit of 0 would be none.
      return Math.max(1, deadline - (System.nanoTime() - began));
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
      throw Errors.interrupted();
    }
  }

  private void leave() {
    permits.release();
    if (isClosed) {
      freeIfIdle();
    }
  }

  private Lane takeLane(int home) {
    for (int at = 0; at < LANES; at++) {
      int place = (home + at) & (LANES - 1);
      if (idle.getPlain(place) != null) {
        Lane lane = idle.getAndSet(place, null);
        if (lane != null) {
          return lane;
        }
      }
    }
    return new Lane();
  }

  private void giveLane(int home, Lane lane) {
    for (int at = 0; at < LANES; at++) {
      int place = (home + at) & (LANES - 1);
      if (idle.getPlain(place) == null && idle.compareAndSet(place, null, lane)) {
        return;
      }
    }
  }

  /** Closes the pool and ends its leases. Calls in progress go on; later ones are refused. */
  void close() {
    synchronized (this) {
      if (isClosed) {
        return;
      }
      isClosing = true;
      isClosed = true;
    }
    try {
      Native.closePool(handle);
    } finally {
      synchronized (this) {
        isClosing = false;
      }
      freeIfIdle();
    }
  }

  /** Frees the handle if no call uses it. The last call after the close succeeds with that. */
  private synchronized void freeIfIdle() {
    if (!isFreed && !isClosing && permits.tryAcquire(LANES)) {
      isFreed = true;
      try {
        Native.freePool(handle);
      } finally {
        // Threads that wait for a permit learn that the pool is closed.
        permits.release(LANES);
      }
    }
  }
}
