"""Functions by model size; one changes what another one returns."""
from torchtitan.components.optimizer import default_adamw
from torchtitan.models.common import decoder_vocab_size
from torchtitan.trainer import Trainer

from . import model_registry


def _dataloader(dataset="c4"):
    return GrainDataLoader.Config(dataset=DATASETS[dataset])


def qwen3_0_6b() -> Trainer.Config:
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(),
        model_spec=model_registry("0.6B"),
        optimizer=default_adamw(lr=3e-4),
        dataloader=_dataloader(),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=4 * 4096,
            max_context_length=4096,
            steps=10,
        ),
        parallelism=ParallelismConfig(tensor_parallel_degree=1),
        checkpoint=CheckpointManager.Config(interval=500),
        activation_checkpoint=SelectiveAC.Config(),
    )


def qwen3_32b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("32B"),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 4096,
            max_context_length=4096,
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=-1,
            tensor_parallel_degree=8,
        ),
        activation_checkpoint=FullAC.Config(),
    )


def qwen3_32b_pipeline() -> Trainer.Config:
    config = qwen3_32b()
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.pipeline_parallel_schedule = "1F1B"
    config.parallelism.num_pp_microbatches = 4
    return config
