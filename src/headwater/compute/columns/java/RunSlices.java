package headwater;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.DataType;

/** What one task reads, slice after slice. */
public final class RunSlices implements InputPartition {
    public final RunSlice[] slices;
    public final DataType[] types;

    public RunSlices(RunSlice[] slices, DataType[] types) {
        this.slices = slices;
        this.types = types;
    }

    /** The same rows of these columns. */
    public RunSlices select(int[] columns) {
        RunSlice[] narrow = new RunSlice[slices.length];
        for (int n = 0; n < slices.length; n++) {
            narrow[n] = slices[n].select(columns);
        }
        DataType[] wanted = new DataType[columns.length];
        for (int n = 0; n < columns.length; n++) {
            wanted[n] = types[columns[n]];
        }
        return new RunSlices(narrow, wanted);
    }
}
