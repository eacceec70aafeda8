package headwater;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import org.apache.spark.unsafe.Platform;

/**
 * The Arrow bytes of a run, none of which is returned unverified.
 *
 * What lies behind the last whole piece has no sum; whoever made the slice has verified it.
 */
public final class RunBytes {
    private final RunSlice slice;
    private final FileChannel file;
    private final long[] keys;
    private final long pieces;

    public RunBytes(RunSlice slice) throws IOException {
        this.slice = slice;
        file = FileChannel.open(Paths.get(slice.path, new String[0]), new OpenOption[] {StandardOpenOption.READ});
        pieces = slice.arrowLength / slice.pieceLength;
        keys = new long[slice.pieceLength / 8];
        for (int n = 0; n < keys.length; n++) {
            keys[n] = key(n + 1);
        }
    }

    /** The n-th key of the sums of pieces: SplitMix64 of n, made odd (collection/run_piece.py). */
    private static long key(long n) {
        long mixed = n * 0x9E3779B97F4A7C15L;
        mixed = (mixed ^ (mixed >>> 30)) * 0xBF58476D1CE4E5B9L;
        mixed = (mixed ^ (mixed >>> 27)) * 0x94D049BB133111EBL;
        return (mixed ^ (mixed >>> 31)) | 1L;
    }

    /** Where the bytes that :read: returned for a start begin. */
    public long at(long start) {
        return Platform.BYTE_ARRAY_OFFSET + start % slice.pieceLength;
    }

    /** The bytes [start, stop) of the Arrow bytes, and those around them that belong to the same pieces. */
    public byte[] read(long start, long stop) throws IOException {
        long first = start / slice.pieceLength;
        long end = Math.min(slice.arrowLength, (stop + slice.pieceLength - 1) / slice.pieceLength * slice.pieceLength);
        byte[] found = new byte[(int) (end - first * slice.pieceLength)];
        fill(found, slice.arrow + first * slice.pieceLength);
        int whole = (int) (Math.min(pieces, (end + slice.pieceLength - 1) / slice.pieceLength) - first);
        if (whole > 0) {
            byte[] sums = new byte[4 * whole];
            fill(sums, slice.sums + 4 * first);
            for (int n = 0; n < whole; n++) {
                if (sum(found, n) != Platform.getInt(sums, Platform.BYTE_ARRAY_OFFSET + 4L * n)) {
                    throw new IOException(
                        "keyed run " + slice.path + "@" + slice.arrow + ", piece " + (first + n)
                            + ", its checksum does not match");
                }
            }
        }
        return found;
    }

    private int sum(byte[] bytes, int piece) {
        long base = Platform.BYTE_ARRAY_OFFSET + (long) piece * slice.pieceLength;
        long sum = 0;
        for (int n = 0; n < keys.length; n++) {
            long word = Platform.getLong(bytes, base + 8L * n);
            sum += keys[n] * (word ^ (word >>> 32));
        }
        return (int) (sum >>> 32);
    }

    private void fill(byte[] bytes, long position) throws IOException {
        ByteBuffer rest = ByteBuffer.wrap(bytes);
        while (rest.hasRemaining()) {
            int got = file.read(rest, position + rest.position());
            if (got < 0) {
                throw new EOFException("keyed run " + slice.path + "@" + slice.arrow + ", it was cut");
            }
        }
    }

    public void close() throws IOException {
        file.close();
    }
}
