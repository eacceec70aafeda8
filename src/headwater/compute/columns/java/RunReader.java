package headwater;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows of a task's slices, some thousand at a time; a batch ends where a row is hidden. */
public final class RunReader implements PartitionReader {
    /** So that no buffer is one that the collector treats as huge. */
    private static final int ROWS = 16384;

    private final RunSlices task;
    private final RunColumn[] columns;
    private final ColumnarBatch batch;
    /** How many slices were begun; the newest of them, and its bytes. */
    private int begun = 0;
    private RunSlice slice = null;
    private RunBytes bytes = null;
    private int loadedFrom;
    private int loadedTo;
    /** The first row that was not shown yet, and the first hidden one that was not passed. */
    private int next;
    private int passed;

    public RunReader(RunSlices task) {
        this.task = task;
        columns = new RunColumn[task.types.length];
        ColumnVector[] vectors = new ColumnVector[columns.length];
        for (int n = 0; n < columns.length; n++) {
            columns[n] = new RunColumn(task.types[n]);
            vectors[n] = columns[n];
        }
        batch = new ColumnarBatch(vectors);
    }

    public boolean next() throws IOException {
        while (slice == null || !hasMore()) {
            if (begun == task.slices.length) {
                return false;
            }
            begin(task.slices[begun++]);
        }
        if (next >= loadedTo) {
            loadedFrom = next;
            loadedTo = Math.min(slice.to, next + ROWS);
            for (int n = 0; n < columns.length; n++) {
                columns[n].load(bytes, slice, n, loadedFrom, loadedTo);
            }
        }
        int end = passed < slice.hidden.length ? Math.min(loadedTo, slice.hidden[passed]) : loadedTo;
        for (int n = 0; n < columns.length; n++) {
            columns[n].show(next - loadedFrom, end - next);
        }
        batch.setNumRows(end - next);
        next = end;
        return true;
    }

    private void begin(RunSlice slice) throws IOException {
        close();
        this.slice = slice;
        bytes = new RunBytes(slice);
        next = slice.from;
        loadedTo = slice.from;
        passed = 0;
    }

    /** Whether the slice has a row left; passes those that are hidden. */
    private boolean hasMore() {
        while (passed < slice.hidden.length && slice.hidden[passed] == next) {
            passed++;
            next++;
        }
        return next < slice.to;
    }

    public Object get() {
        return batch;
    }

    public void close() throws IOException {
        if (bytes != null) {
            bytes.close();
        }
    }
}
