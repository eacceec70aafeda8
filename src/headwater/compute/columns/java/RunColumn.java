package headwater;

import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Some rows of a column, in Arrow's buffers as they lie in the run. */
public final class RunColumn extends ColumnVector {
    private final int width;
    private byte[] validity;
    private byte[] values;
    private byte[] chars;
    /** Where the values of row 0 begin; for bits, its number. */
    private long valuesAt;
    private long validBit;
    /** Where the characters of an offset lie: add the offset. */
    private long charsAt;
    private int first;
    private int rows;

    public RunColumn(DataType type) {
        super(type);
        if (type instanceof StringType || type instanceof BinaryType) {
            width = 4;
        } else if (type instanceof DecimalType) {
            width = 16;
        } else {
            width = type instanceof BooleanType ? 0 : type.defaultSize();
        }
    }

    /** Hold the rows [from, to) of the n-th column of a slice. */
    public void load(RunBytes bytes, RunSlice slice, int n, int from, int to) throws IOException {
        validity = null;
        if (slice.validity[n] >= 0) {
            long start = slice.validity[n] + from / 8;
            validity = bytes.read(start, slice.validity[n] + (to + 7) / 8);
            validBit = 8 * (bytes.at(start) - Platform.BYTE_ARRAY_OFFSET) + from % 8;
        }
        long start = slice.values[n] + (width == 0 ? from / 8 : (long) from * width);
        if (width == 0) {
            values = bytes.read(start, slice.values[n] + (to + 7) / 8);
            valuesAt = 8 * (bytes.at(start) - Platform.BYTE_ARRAY_OFFSET) + from % 8;
            return;
        }
        boolean isText = slice.chars[n] >= 0;
        values = bytes.read(start, slice.values[n] + (long) to * width + (isText ? width : 0));
        valuesAt = bytes.at(start);
        if (isText) {
            long begin = Platform.getInt(values, valuesAt);
            long end = Platform.getInt(values, valuesAt + (long) (to - from) * width);
            chars = bytes.read(slice.chars[n] + begin, slice.chars[n] + end);
            charsAt = bytes.at(slice.chars[n] + begin) - Platform.BYTE_ARRAY_OFFSET - begin;
        }
    }

    /** Show so many of the rows, from one on. */
    public void show(int first, int rows) {
        this.first = first;
        this.rows = rows;
    }

    private static boolean bit(byte[] bits, long number) {
        return (bits[(int) (number >> 3)] >> (number & 7) & 1) != 0;
    }

    private long at(int row) {
        return valuesAt + (long) (first + row) * width;
    }

    public boolean hasNull() {
        return validity != null;
    }

    public int numNulls() {
        int found = 0;
        for (int n = 0; n < rows && validity != null; n++) {
            found += isNullAt(n) ? 1 : 0;
        }
        return found;
    }

    public boolean isNullAt(int row) {
        return validity != null && !bit(validity, validBit + first + row);
    }

    public boolean getBoolean(int row) {
        return bit(values, valuesAt + first + row);
    }

    public byte getByte(int row) {
        return Platform.getByte(values, at(row));
    }

    public short getShort(int row) {
        return Platform.getShort(values, at(row));
    }

    public int getInt(int row) {
        return Platform.getInt(values, at(row));
    }

    public long getLong(int row) {
        return Platform.getLong(values, at(row));
    }

    public float getFloat(int row) {
        return Platform.getFloat(values, at(row));
    }

    public double getDouble(int row) {
        return Platform.getDouble(values, at(row));
    }

    public Decimal getDecimal(int row, int precision, int scale) {
        if (isNullAt(row)) {
            return null;
        }
        if (precision <= Decimal.MAX_LONG_DIGITS()) {
            return Decimal.createUnsafe(getLong(row), precision, scale);
        }
        byte[] big = new byte[16];
        for (int n = 0; n < 16; n++) {
            big[n] = Platform.getByte(values, at(row) + 15 - n);
        }
        return Decimal.apply(new BigDecimal(new BigInteger(big), scale), precision, scale);
    }

    public UTF8String getUTF8String(int row) {
        if (isNullAt(row)) {
            return null;
        }
        int start = getInt(row);
        return UTF8String.fromBytes(chars, (int) (charsAt + start), getInt(row + 1) - start);
    }

    public byte[] getBinary(int row) {
        return isNullAt(row) ? null : getUTF8String(row).getBytes();
    }

    public ColumnarArray getArray(int row) {
        throw new UnsupportedOperationException();
    }

    public ColumnarMap getMap(int row) {
        throw new UnsupportedOperationException();
    }

    public ColumnVector getChild(int child) {
        throw new UnsupportedOperationException();
    }

    public void close() {
    }
}
