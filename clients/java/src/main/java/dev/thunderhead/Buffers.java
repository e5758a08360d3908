package dev.thunderhead;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Makes buffers in the byte order of the native library's bytes. */
final class Buffers {
  private Buffers() {}

  static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  static ByteBuffer heap(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  static ByteBuffer of(byte[] bytes) {
    return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }
}
