from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer


def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(
            local_batch_size=1, seq_len=8192, steps=1_000
        ),
        parallelism=ParallelismConfig(data_parallel_shard_degree=-1),
        activation_checkpoint=ActivationCheckpointConfig(
            mode="selective", selective_ac_option="op"
        ),
    )
