package headwater;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** What a task makes its reader with. */
public final class RunReaders implements PartitionReaderFactory {
    public PartitionReader createReader(InputPartition partition) {
        throw new UnsupportedOperationException();
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
        return new RunReader((RunSlices) partition);
    }

    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }
}
