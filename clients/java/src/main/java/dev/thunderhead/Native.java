package dev.thunderhead;

import java.nio.ByteBuffer;

/**
 * The functions of the native library. See {@code clients/java/native/src/lib.rs}.
 *
 * <p>{@link Library#load} comes first. A handle must not be used after it was freed, and an address
 * only while its buffer lives. {@link Pool} and {@link Queue} see to both.
 */
final class Native {
  private Native() {}

  static native long address(ByteBuffer buffer);

  static native void panic();

  static native byte[] openPool(byte[] url, long deadline, long[] opened);

  static native byte[] call(long pool, long address, int length, int capacity);

  static native byte[] callArray(long pool, byte[] request, int length);

  static native long openScan(long pool, long table);

  static native void closeScan(long pool, long scan);

  static native void closePool(long pool);

  static native void freePool(long pool);

  static native byte[] openQueue(byte[] url, long deadline, long[] opened);

  static native long submit(long queue, long address, int length);

  static native long submitArray(long queue, byte[] request, int length);

  static native void cancel(long queue, long number);

  static native byte[] take(long queue, long address, int capacity);

  static native void wake(long queue);

  static native long openQueueScan(long queue, long table);

  static native void closeQueueScan(long queue, long scan);

  static native void closeQueue(long queue);

  static native void freeQueue(long queue);
}
